"""How few-shot predictors are tested: what they train on, whom they meet, and which runs they are shown.

Every function gives folds. In a fold no application is both trained on and met.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot.case import Case, Corpus
from trimtab.predict.fewshot.predictor import Rows

SHOTS = (1, 2, 3)

BaseSets = Callable[[Case, Rows, int], Iterable[Sequence[int]]]


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A case of which only the rows in `known` have been run."""

    case: Case
    known: Rows

    @property
    def targets(self) -> Rows:
        """The rows to predict: all others with a time to compare with."""
        hidden = np.ones(len(self.case), dtype=bool)
        hidden[self.known] = False
        return np.flatnonzero(hidden & ~np.isnan(self.case.seconds))


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Cases to train on, and the episodes to meet afterwards, by how many runs are known."""

    name: str
    training: tuple[Case, ...]
    episodes: Mapping[int, tuple[Episode, ...]]


def synthetic_to_real(corpus: Corpus) -> list[Fold]:
    """Serverless A: train on the synthetic functions, meet the real ones; all sets of known sizes."""
    real = corpus.within("real").cases
    return [Fold("real", corpus.within("synthetic").cases, _episodes(real, _all_sets))]


def leave_functions_out(corpus: Corpus, seed: int = 0, together: int = 2) -> list[Fold]:
    """Serverless B: folds of two real functions; train on the other real ones and all synthetic ones."""
    real = corpus.within("real")
    count = -(-len(real.applications) // together)
    folds = []
    for left_out in random_folds(real.applications, count, seed):
        met = tuple(case for case in real.cases if case.application in left_out)
        folds.append(_fold(left_out, corpus.cases, _episodes(met, _all_sets)))
    return folds


def leave_application_out(corpus: Corpus, draws: int = 10, seed: int = 0) -> list[Fold]:
    """Multicloud and scout: one application at a time, `draws` random sets of known runs for each case."""
    folds = []
    for application in corpus.applications:
        met = tuple(case for case in corpus.cases if case.application == application)
        folds.append(_fold((application,), corpus.cases, _episodes(met, _random_sets(draws, seed))))
    return folds


def functions(corpus: Corpus, environment: str = "lambda", folds: int = 5, seed: int = 0) -> list[Fold]:
    """Completed runs within one environment; applications left out fold by fold, all sets of known sizes."""
    return functions_elsewhere(corpus, environment, environment, folds, seed)


def functions_elsewhere(
    corpus: Corpus, source: str = "lambda", target: str = "openwhisk", folds: int = 5, seed: int = 0
) -> list[Fold]:
    """Train in one environment, meet applications in another that training has seen in neither."""
    completed = corpus.completed()
    training, tested = completed.within(source), completed.within(target)
    found = []
    for left_out in random_folds(tested.applications, folds, seed):
        met = tuple(case for case in tested.cases if case.application in left_out)
        found.append(_fold(left_out, training.cases, _episodes(met, _all_sets)))
    return found


def _fold(
    left_out: Sequence[str], cases: Sequence[Case], episodes: Mapping[int, tuple[Episode, ...]]
) -> Fold:
    training = tuple(case for case in cases if case.application not in left_out)
    name = ", ".join(left_out)
    if not training:
        raise BadInputError(f"without {name} there is no case left to train on; it takes two applications")
    return Fold(name, training, episodes)


def _episodes(cases: Sequence[Case], base_sets: BaseSets) -> dict[int, tuple[Episode, ...]]:
    """Known are runs with a time, and at least one such run is left to predict."""
    measured = [(case, np.flatnonzero(~np.isnan(case.seconds))) for case in cases]
    return {
        shots: tuple(
            Episode(case, np.array(known, dtype=np.intp))
            for case, rows in measured
            if len(rows) > shots
            for known in base_sets(case, rows, shots)
        )
        for shots in SHOTS
    }


def _all_sets(case: Case, measured: Rows, shots: int) -> Iterable[Sequence[int]]:
    return combinations(measured.tolist(), shots)


def _random_sets(draws: int, seed: int) -> BaseSets:
    """The sets of a case depend on the seed and on its name, not on what else is in the corpus."""

    def sets(case: Case, measured: Rows, shots: int) -> Iterable[Sequence[int]]:
        random = np.random.default_rng([seed, shots, *case.label.encode()])
        return [np.sort(random.choice(measured, shots, replace=False)).tolist() for _ in range(draws)]

    return sets
