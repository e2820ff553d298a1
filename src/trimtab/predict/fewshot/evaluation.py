"""A predictor through the folds of a protocol; it is handed cases with all but the known blanked out."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.predictor import Predictor, Rows
from trimtab.predict.fewshot.protocol import Episode, Fold
from trimtab.predict.fewshot.schema import Array
from trimtab.predict.fewshot.scores import Predictions, Scores, score


class Ranged(Protocol):
    """A fitted predictor whose answers come with a range."""

    def interval(self, case: Case, known: Rows) -> tuple[Array, Array, Array]:
        """Low, answer and high in seconds, under every configuration of the case."""
        ...


class RangedPredictor(Protocol):
    """One that learns to answer so."""

    def fit(self, cases: Sequence[Case]) -> Ranged: ...


# Seconds, and the range around them where one is stated.
Answer = tuple[Array, Array | None, Array | None]


def backtest(predictor: Predictor, folds: Iterable[Fold]) -> dict[int, Scores]:
    """The scores by how many runs are known."""
    return {shots: score(found) for shots, found in predictions(predictor, folds).items()}


def predictions(predictor: Predictor, folds: Iterable[Fold]) -> dict[int, Predictions]:
    """Every prediction of every fold beside what was measured, by how many runs are known."""
    return _gathered(predictor, folds, lambda fitted, case, known: (fitted.predict(case, known), None, None))


def spread_predictions(predictor: RangedPredictor, folds: Iterable[Fold]) -> dict[int, Predictions]:
    """The same with the range stated for each."""

    def ranged(fitted: Ranged, case: Case, known: Rows) -> Answer:
        low, seconds, high = fitted.interval(case, known)
        return seconds, low, high

    return _gathered(predictor, folds, ranged)


def _gathered(predictor: Any, folds: Iterable[Fold], ask: Callable[..., Answer]) -> dict[int, Predictions]:
    gathered: dict[int, list[Predictions]] = {}
    for fold in folds:
        fitted = predictor.fit(fold.training)
        for shots, episodes in fold.episodes.items():
            gathered.setdefault(shots, []).extend(_answered(fitted, episode, ask) for episode in episodes)
    return {shots: Predictions.join(parts) for shots, parts in gathered.items() if parts}


def _answered(fitted: Any, episode: Episode, ask: Callable[..., Answer]) -> Predictions:
    case, targets = episode.case, episode.targets
    seconds, low, high = ask(fitted, case.seen_at(episode.known), episode.known)
    return Predictions(
        application=(case.application,) * len(targets),
        case=(case.label,) * len(targets),
        predicted=seconds[targets],
        measured=case.seconds[targets],
        low=None if low is None else low[targets],
        high=None if high is None else high[targets],
    )
