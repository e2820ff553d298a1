"""How long would an application nobody has seen take elsewhere, when it has run one to three times?

Data sets are read by their modules (`multicloud.read(folder)`), a protocol makes folds of them, and
`backtest` takes a predictor through the folds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.predict.fewshot.case import Case, Corpus
    from trimtab.predict.fewshot.evaluation import backtest, predictions
    from trimtab.predict.fewshot.predictor import Fitted, Predictor
    from trimtab.predict.fewshot.protocol import Episode, Fold
    from trimtab.predict.fewshot.rules import RULES
    from trimtab.predict.fewshot.schema import METRICS, SETTINGS
    from trimtab.predict.fewshot.scores import Predictions, Scores, combine, score
    from trimtab.predict.fewshot.trees import Trees

__all__ = [
    "METRICS",
    "RULES",
    "SETTINGS",
    "Case",
    "Corpus",
    "Episode",
    "Fitted",
    "Fold",
    "Predictions",
    "Predictor",
    "Scores",
    "Trees",
    "backtest",
    "combine",
    "predictions",
    "score",
]

_ROOMS = {
    "METRICS": "schema",
    "RULES": "rules",
    "SETTINGS": "schema",
    "Case": "case",
    "Corpus": "case",
    "Episode": "protocol",
    "Fitted": "predictor",
    "Fold": "protocol",
    "Predictions": "scores",
    "Predictor": "predictor",
    "Scores": "scores",
    "Trees": "trees",
    "backtest": "evaluation",
    "combine": "scores",
    "predictions": "evaluation",
    "score": "scores",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
