"""Why jobs wait or run so, in the terms of prices; made only for those who ask."""

from collections.abc import Iterator, Mapping

import numpy as np

from trimtab.schedule.allocation import WAITING
from trimtab.schedule.assignment import Answer, Problem
from trimtab.schedule.cluster import Cluster, Ints

HOPELESS = "nothing in this cluster can hold it, even if it were empty, or what it costs is not in its budget"


class Bids(Mapping[int, str]):
    """For each job what its best shape is worth to it, and what that would cost others at these prices."""

    def __init__(self, cluster: Cluster, problem: Problem, answer: Answer, pinned: Ints) -> None:
        self._cluster, self._problem, self._answer, self._pinned = cluster, problem, answer, pinned

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise KeyError(row)
        if self._pinned[row] != WAITING:
            return f"{self._named(int(self._pinned[row]))}: it is just starting there, and left alone"
        shape = int(self._answer.shape[row])
        value = self._problem.value[row]
        if np.isneginf(value).all():
            return HOPELESS
        if shape != WAITING:
            return f"{self._named(shape)}: {self._compared(row, shape)}"
        best = int(np.argmax(value - self._charged(row)))
        return f"others gain more now. {self._named(best)}: {self._compared(row, best)}"

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._answer.shape)

    def _charged(self, row: int) -> np.ndarray:
        problem = self._problem
        charged: np.ndarray = problem.workers * (problem.demand[row] @ self._answer.prices[problem.group].T)
        return charged

    def _named(self, shape: int) -> str:
        chosen = self._cluster.shapes[shape]
        group = self._cluster.groups[chosen.group]
        return f"{chosen.workers} worker{'s' if chosen.workers > 1 else ''} on {group.name}"

    def _compared(self, row: int, shape: int) -> str:
        worth, cost = float(self._problem.value[row, shape]), float(self._charged(row)[shape])
        return f"saves it {worth:.2g} s of waiting per second, costs others {cost:.2g}"
