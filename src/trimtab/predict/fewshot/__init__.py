"""How long would an application nobody has seen take elsewhere, when it has run one to three times?

Data sets are read by their modules (`multicloud.read(folder)`), a protocol makes folds of them, and
`backtest` takes a predictor through the folds.
"""

from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.predict.fewshot.case import Case, Corpus
    from trimtab.predict.fewshot.covariance import CurveModel
    from trimtab.predict.fewshot.curves import Curves, FittedCurves
    from trimtab.predict.fewshot.evaluation import backtest, predictions, spread_predictions
    from trimtab.predict.fewshot.flash import Flash
    from trimtab.predict.fewshot.forest import Forest, ForestSettings
    from trimtab.predict.fewshot.leaves import FEATURES, FittedLeaves, Leaves
    from trimtab.predict.fewshot.matrix import TimeMatrix, distances
    from trimtab.predict.fewshot.ours import OURS, FittedOurs, Ours
    from trimtab.predict.fewshot.predictor import Fitted, Predictor, Rows
    from trimtab.predict.fewshot.protocol import Episode, Fold
    from trimtab.predict.fewshot.rules import (
        RULES,
        FittedMedianRatio,
        FittedNearestWorkloads,
        FittedScaledProfile,
        Interpolation,
        MeanOfKnown,
        MedianRatio,
        NearestKnown,
        NearestWorkloads,
        ScaledProfile,
    )
    from trimtab.predict.fewshot.schema import METRICS, SCALES, SETTINGS, Array, metrics_table, settings_table
    from trimtab.predict.fewshot.scores import Predictions, Scores, combine, score
    from trimtab.predict.fewshot.sizeless import Sizeless
    from trimtab.predict.fewshot.spread import Spread
    from trimtab.predict.fewshot.stretch import Stretch
    from trimtab.predict.fewshot.trees import Trees

__all__ = [
    "BUNDLED_FUNCTIONS",
    "FEATURES",
    "METRICS",
    "OURS",
    "RULES",
    "SCALES",
    "SETTINGS",
    "Array",
    "Case",
    "Corpus",
    "CurveModel",
    "Curves",
    "Episode",
    "Fitted",
    "FittedCurves",
    "FittedLeaves",
    "FittedMedianRatio",
    "FittedNearestWorkloads",
    "FittedOurs",
    "FittedScaledProfile",
    "Flash",
    "Fold",
    "Forest",
    "ForestSettings",
    "Interpolation",
    "Leaves",
    "MeanOfKnown",
    "MedianRatio",
    "NearestKnown",
    "NearestWorkloads",
    "Ours",
    "Predictions",
    "Predictor",
    "Rows",
    "ScaledProfile",
    "Scores",
    "Sizeless",
    "Spread",
    "Stretch",
    "TimeMatrix",
    "Trees",
    "backtest",
    "combine",
    "distances",
    "metrics_table",
    "predictions",
    "score",
    "settings_table",
    "spread_predictions",
]

# The functions that Trimtab measured itself.
BUNDLED_FUNCTIONS = Path(str(files("trimtab.predict") / "data" / "functions" / "functions.csv"))

_ROOMS = {
    "FEATURES": "leaves",
    "METRICS": "schema",
    "OURS": "ours",
    "RULES": "rules",
    "SCALES": "schema",
    "SETTINGS": "schema",
    "Array": "schema",
    "Case": "case",
    "Corpus": "case",
    "CurveModel": "covariance",
    "Curves": "curves",
    "Episode": "protocol",
    "Fitted": "predictor",
    "FittedCurves": "curves",
    "FittedLeaves": "leaves",
    "FittedMedianRatio": "rules",
    "FittedNearestWorkloads": "rules",
    "FittedOurs": "ours",
    "FittedScaledProfile": "rules",
    "Flash": "flash",
    "Fold": "protocol",
    "Forest": "forest",
    "ForestSettings": "forest",
    "Interpolation": "rules",
    "Leaves": "leaves",
    "MeanOfKnown": "rules",
    "MedianRatio": "rules",
    "NearestKnown": "rules",
    "NearestWorkloads": "rules",
    "Ours": "ours",
    "Predictions": "scores",
    "Predictor": "predictor",
    "Rows": "predictor",
    "ScaledProfile": "rules",
    "Scores": "scores",
    "Sizeless": "sizeless",
    "Spread": "spread",
    "Stretch": "stretch",
    "TimeMatrix": "matrix",
    "Trees": "trees",
    "backtest": "evaluation",
    "combine": "scores",
    "distances": "matrix",
    "metrics_table": "schema",
    "predictions": "evaluation",
    "score": "scores",
    "settings_table": "schema",
    "spread_predictions": "evaluation",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
