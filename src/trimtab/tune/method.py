"""What every way of searching offers, and what all of them need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict import Array, Case
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space


@dataclass(frozen=True, slots=True)
class Choice:
    """What to try next and why; by which part of the best value so far it is expected to be better."""

    row: int
    reason: str
    expected_gain: float | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more to try, and why."""

    reason: str


class Belief(NamedTuple):
    """The objective of every configuration: 90 % of the truth is thought to lie from low to high."""

    low: Array
    value: Array
    high: Array


class Search(Protocol):
    """A search that has begun. It keeps no trials: everything seen is told each time."""

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        """What to try now; never a configuration that has failed or had a full trial."""
        ...

    def belief(self, seen: Sequence[Observation]) -> Belief | None:
        """What is thought of every configuration; None of a method that does not say."""
        ...


class Method(Protocol):
    """A way to search: `others` are other workloads' measured times, which it may learn from."""

    @property
    def name(self) -> str: ...

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search: ...


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """What was seen, as columns, and what is left to try."""

    rows: NDArray[np.intp]  # of trials that completed
    values: Array  # of the objective
    fidelity: Array
    failed: NDArray[np.intp]
    left: NDArray[np.intp]

    @classmethod
    def of(cls, space: Space, objective: str, seen: Sequence[Observation]) -> "Trials":
        for one in seen:
            if one.row >= len(space):
                raise BadInputError(
                    f"row {one.row} was tried, but there are only {len(space)} configurations"
                )
        done = [one for one in seen if one.ok]
        rows = np.array([one.row for one in done], dtype=np.intp)
        failed = np.array([one.row for one in seen if not one.ok], dtype=np.intp)
        settled = {one.row for one in seen if not one.ok or one.fidelity >= 1}
        return cls(
            rows,
            space.values(objective, [one.seconds for one in done], rows),
            np.array([one.fidelity for one in done], dtype=float),
            failed,
            np.array([row for row in range(len(space)) if row not in settled], dtype=np.intp),
        )

    @property
    def best(self) -> float:
        """The least value so far; infinite before the first."""
        return float(self.values.min()) if self.values.size else float("inf")

    def punished(self) -> tuple[NDArray[np.intp], Array]:
        """Rows and values, failed trials counted as twice the worst: for models that know of no failures."""
        worst = 2 * float(self.values.max()) if self.values.size else 1.0
        return np.append(self.rows, self.failed), np.append(self.values, np.full(len(self.failed), worst))


ALL_TRIED = Stop("every configuration has been tried")


def starts(space: Space, seed: int) -> NDArray[np.intp]:
    """The configurations in random order: how every method begins that knows nothing yet."""
    return np.random.default_rng(seed).permutation(len(space))


def random_start(space: Space, seed: int, trials: Trials) -> Choice:
    """The first one in that order which is left."""
    row = next(int(row) for row in starts(space, seed) if row in trials.left)
    return Choice(row, "a random start: nothing is known yet")


def best_row(space: Space, objective: str, seen: Sequence[Observation]) -> int | None:
    """The best configuration that completed; of full trials where there is one. None if none completed."""
    full = [one for one in seen if one.ok and one.fidelity >= 1] or [one for one in seen if one.ok]
    if not full:
        return None
    trials = Trials.of(space, objective, full)
    return int(trials.rows[trials.values.argmin()])
