"""A predictor through the folds of a protocol; it is handed cases with all but the known blanked out."""

from collections.abc import Iterable, Sequence

import numpy as np

from trimtab.predict.fewshot.predictor import Fitted, Predictor
from trimtab.predict.fewshot.protocol import Episode, Fold
from trimtab.predict.fewshot.scores import Predictions, Scores, score


def backtest(predictor: Predictor, folds: Iterable[Fold]) -> dict[int, Scores]:
    """The scores by how many runs are known."""
    return {shots: score(found) for shots, found in predictions(predictor, folds).items()}


def predictions(predictor: Predictor, folds: Iterable[Fold]) -> dict[int, Predictions]:
    """Every prediction of every fold beside what was measured, by how many runs are known."""
    gathered: dict[int, list[Predictions]] = {}
    for fold in folds:
        fitted = predictor.fit(fold.training)
        for shots, episodes in fold.episodes.items():
            gathered.setdefault(shots, []).extend(_predict(fitted, episode) for episode in episodes)
    return {shots: _join(parts) for shots, parts in gathered.items() if parts}


def _predict(fitted: Fitted, episode: Episode) -> Predictions:
    case, targets = episode.case, episode.targets
    seconds = fitted.predict(case.seen_at(episode.known), episode.known)
    return Predictions(
        application=(case.application,) * len(targets),
        case=(case.label,) * len(targets),
        predicted=seconds[targets],
        measured=case.seconds[targets],
    )


def _join(parts: Sequence[Predictions]) -> Predictions:
    return Predictions(
        application=[name for part in parts for name in part.application],
        case=[name for part in parts for name in part.case],
        predicted=np.concatenate([part.predicted for part in parts]),
        measured=np.concatenate([part.measured for part in parts]),
    )
