"""What commands keep of their results: in the ledger here, or in a server's that may go away meanwhile."""

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trimtab.cli.place import is_here, place

if TYPE_CHECKING:
    from trimtab.core import Decision, TrimtabError
    from trimtab.serve import Client, Service

_PAUSE = 5.0  # s; a server that was away just now is not asked again


@dataclass(frozen=True, slots=True)
class _Happened:
    decision: str
    measured: Mapping[str, float]
    note: str


class Keeping:
    """Decisions and outcomes on their way into the ledger.

    Here, a store that fails ends the command at once. What a server does not take waits, and is offered again
    before what comes next; so a result is printed all the same, and `require` then tells what is not kept.
    With `first`, the first decision has to be taken: nothing is measured before it.
    """

    def __init__(self, first: bool = False) -> None:
        self._waiting: deque[Decision | _Happened] = deque()
        self._ids: dict[str, str] = {}
        self._first = first
        self._failed = -math.inf
        self._why: TrimtabError | None = None

    def record(self, decision: "Decision") -> "Decision":
        """Keep a decision; as it is kept, which may be under another id."""
        self._waiting.append(decision)
        self._offer()
        return replace(decision, id=self.id_of(decision.id) or decision.id)

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str = "") -> None:
        """Keep what happened after a decision."""
        self._waiting.append(_Happened(id, measured, note))
        self._offer()

    def id_of(self, id: str) -> str:
        """Under which id that decision is kept; "" where it is not."""
        return self._ids.get(id, "")

    @property
    def left(self) -> str:
        """A sentence about what the server has not taken; "" where it has all."""
        if not self._waiting:
            return ""
        decisions = sum(not isinstance(each, _Happened) for each in self._waiting)
        counts = ((decisions, "decision"), (len(self._waiting) - decisions, "outcome"))
        what = " and ".join(f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n)
        return f"{what} could not be kept: {self._why}"

    def require(self) -> None:
        """After everything is printed and written: an error where something is not kept."""
        from trimtab.core import TrimtabError

        if self.left:
            raise TrimtabError(self.left)

    def _offer(self) -> None:
        from trimtab.core import TrimtabError

        if time.monotonic() - self._failed < _PAUSE:
            return
        try:
            with place() as at:
                while self._waiting:
                    self._give(at, self._waiting[0])
                    self._waiting.popleft()
        except TrimtabError as error:
            if is_here() or (self._first and not self._ids):
                self._waiting.clear()  # the error tells of it
                raise
            self._failed, self._why = time.monotonic(), error

    def _give(self, at: "Service | Client", what: "Decision | _Happened") -> None:
        if isinstance(what, _Happened):
            id = self._ids.get(what.decision, what.decision)
            at.decisions.record_outcome(id, what.measured, what.note)
            return
        kept = at.decisions.record(what).id
        self._ids |= {what.id: kept, kept: kept}
