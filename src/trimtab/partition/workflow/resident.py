"""What a stage has in memory that its control group is not charged with: libraries others loaded before."""

import os
from itertools import zip_longest

from trimtab.kernel import tree


class Resident:
    """The largest process that this one has started, looked at again and again.

    The kernel charges a page of a file to whoever read it first. A stage that runs here after others have
    used the same libraries is charged for none of them; in a fresh container it is. Only the largest process
    counts, because processes of one stage share such pages.
    """

    def __init__(self) -> None:
        self._before = {found.pid for found in tree(os.getpid())}
        self._seen: list[float] = []

    def look(self) -> None:
        """Note what is resident now."""
        started = (found.memory for found in tree(os.getpid()) if found.pid not in self._before)
        self._seen.append(max(started, default=0.0))

    def at_least(self, charged: tuple[float, ...]) -> tuple[float, ...]:
        """What was charged at each look, and at the end, or what was resident where that was more."""
        looks = self._seen[: len(charged)]
        return tuple(max(pair) for pair in zip_longest(charged, looks, fillvalue=0.0))
