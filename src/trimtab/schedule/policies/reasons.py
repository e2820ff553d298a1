"""Why jobs wait, in sentences that are made only for those who ask."""

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from trimtab.schedule.allocation import WAITING
from trimtab.schedule.cluster import Ints
from trimtab.schedule.jobs import Bools


class Reasons(Mapping[int, str]):
    """For each waiting job how many running ones came before it, by which rule; `known` goes first."""

    def __init__(
        self, shape: Ints, order: Ints, possible: Bools, rule: str, known: Mapping[int, str] | None = None
    ) -> None:
        self._shape, self._order, self._possible, self._rule = shape, order, possible, rule
        self._known = dict(known or {})

    @cached_property
    def _ahead(self) -> dict[int, int]:
        """Waiting jobs, with the running ones before each."""
        runs = self._shape[self._order] != WAITING
        return dict(zip(self._order[~runs].tolist(), np.cumsum(runs)[~runs].tolist(), strict=True))

    def __getitem__(self, row: int) -> str:
        if row in self._known:
            return self._known[row]
        ahead = self._ahead[row]
        if not self._possible[row]:
            return "nothing in this cluster can hold it, even if it were empty"
        return f"running jobs that come before it by {self._rule}: {ahead}; what is left does not hold it"

    def __iter__(self) -> Iterator[int]:
        return iter({**self._ahead, **self._known})

    def __len__(self) -> int:
        return len({**self._ahead, **self._known})
