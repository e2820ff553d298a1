"""What a node has told the controller on one line, and so what the controller's orders can mean."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import one_line
from trimtab.resize.controller import Limits
from trimtab.resize.keeper import Keeper
from trimtab.resize.link.client import Line
from trimtab.resize.link.wire import ROW, Join, Report, Rows
from trimtab.resize.member import Member


@dataclass(slots=True, eq=False)
class Told:
    """Who has been reported, and with which message."""

    line: Line
    patience: float  # s
    members: dict[int, Member] = field(default_factory=dict)  # by slot
    asked: set[int] = field(default_factory=set)  # slots of those who stand still
    _since: dict[int, int] = field(default_factory=dict)  # by slot: the number of the first report with it
    _throttles: dict[int, int] = field(default_factory=dict)  # by slot: as they were in the last report

    def report(self, keeper: Keeper, seconds: float) -> Report:
        """The next report, to be said at once: who came and went since the last one, and how all are."""
        there = {member.slot: member for member in keeper.node.members.values()}
        gone = sorted(slot for slot, member in self.members.items() if there.get(slot) is not member)
        new = sorted(slot for slot, member in there.items() if self.members.get(slot) is not member)
        for slot in gone:
            self.asked.discard(slot)
        number = self.line.post.sent + 1
        for slot in new:
            self._since[slot] = number
            self._throttles[slot] = there[slot].throttles
        self.members = there
        joins = tuple(Join(slot, there[slot].pool, one_line(there[slot].container.cgroup)) for slot in new)
        return Report(seconds, self._rows(keeper), joins, np.array(gone, dtype="<u4"))

    def meant(self, rows: Rows, keeper: Keeper) -> Limits:
        """Limits for containers that the controller knew of when it gave this order, and that are still here.

        A slot may be another's by now: an order that was under way meanwhile is not for that one.
        """
        known = self.line.post.acknowledged
        there = {member.slot: member for member in keeper.node.members.values()} if len(rows) else {}
        chosen = [
            at
            for at, slot in enumerate(rows["slot"].tolist())
            if slot in there and there[slot] is self.members.get(slot) and self._since[slot] <= known
        ]
        return Limits(rows["slot"][chosen].astype(np.intp), rows["value"][chosen])

    def _rows(self, keeper: Keeper) -> Rows:
        slots = keeper.controller.slots
        rows = np.empty(len(slots), ROW)
        rows["slot"] = slots
        for name in ("used", "cpus", "memory", "memory_used"):
            rows[name] = keeper.controller.column(name)
        counts = [self.members[slot].throttles for slot in slots.tolist()]
        rows["throttled"] = np.array(counts) - [self._throttles[slot] for slot in slots.tolist()]
        self._throttles.update(zip(slots.tolist(), counts, strict=True))
        return rows
