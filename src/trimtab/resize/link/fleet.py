"""All nodes' containers in one controller: what agents report goes in, what they are to do comes out.

Caps hold although messages are under way. A limit that is to shrink counts as before until its agent reports
that it has; one that is to grow counts from the moment it is ordered. A node that is not heard of keeps
counting until its agent, which then has heard nothing either, has put back safe limits. And a controller that
has just begun gives nothing until every agent of its predecessor has either registered or given up.

Time is the monotonic clock's throughout: a jump of the wall clock changes nothing here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.agent import Grant, Notice
from trimtab.resize.controller import Controller, Limits
from trimtab.resize.link.roster import Roster, Seat
from trimtab.resize.link.wire import ROW, Ask, Confirm, Orders, Post, Relief, Report, Welcome, WireError
from trimtab.resize.memory import MemorySettings
from trimtab.resize.pool import Pool
from trimtab.resize.sharing import Array, Indices

PATIENCE = 2.0  # s that either side may be silent
_RELEASING = 0.5  # s that an agent takes to put back safe limits
_MOST_SAID = 100  # messages of a node in one period, and two more for every container
_MOST_UNREAD = 100  # messages that wait for a node to read them
_ASK = 0.2  # s in which memory for a container that stands still must be found


@dataclass(slots=True, eq=False)
class _Waiting:
    """A container that stands still until memory for it is found."""

    seat: Seat
    slot: int  # ours
    theirs: int
    since: float
    until: float
    rounds: int = 3  # of taking from others; what they use is known only as of their last reports
    orders: dict[int, int] = field(default_factory=dict)  # by node: those it has not confirmed yet


class Fleet:
    """Nodes by name, and one controller for their containers. Nothing here waits or touches anything."""

    def __init__(
        self,
        pools: Sequence[Pool],
        now: float,
        settle: bool = True,
        patience: float = PATIENCE,
        memory: MemorySettings | None = None,
        notice: Notice = lambda grant: None,
    ) -> None:
        """Without `settle` nobody can have been there before, and giving begins at once."""
        self.controller = Controller(pools, memory)
        self.patience = patience
        self.roster = Roster(self.controller)
        self._settled = now + patience + _RELEASING if settle else now
        self._reclaimed = now
        self._waiting: dict[int, _Waiting] = {}
        self._notice = notice
        self._welcome = Welcome(self.controller.pools, patience)
        self._trapping = np.array([self.controller.traps(number) for number in range(len(pools))])

    def register(self, name: str, post: Post, now: float, wake: Callable[[], None]) -> Seat:
        """A node says hello; one of that name that was here before is replaced, and keeps counting until
        the new stream's first report says what there is."""
        seat = self.roster.seat(name, post, now, wake)
        seat.say(self._welcome)
        return seat

    def report(self, seat: Seat, report: Report, now: float) -> None:
        """Take in who came and went, and keep the rest for the next orders."""
        self._hear(seat, now)
        self.roster.take_in(seat, report)
        seat.slots = self.roster.ours(seat, report.rows["slot"])
        seat.rows, seat.knew = report.rows, seat.post.acknowledged
        self.roster.known["throttles"][seat.slots] += report.rows["throttled"]

    def decide(self, seconds: float, now: float) -> None:
        """One period: count what is in force, decide, and answer every node that has reported since."""
        self._drop_silent(now)
        for seat in self.roster.seats.values():
            seat.said = 0
        due = [seat for seat in self.roster.seats.values() if seat.rows is not None]
        self._count(due)
        self.controller.decide(seconds)
        self._send(due, self._decided(due, now) if now >= self._settled else [_nothing()] * 4)
        for waiting in self._those_waiting():
            self._try(waiting, now)

    def ask(self, seat: Seat, ask: Ask, now: float) -> None:
        """A container stands still: grant it memory, or find some first."""
        self._hear(seat, now)
        slots, told = self.roster.ours(seat, np.array([ask.slot])), np.array([ask.memory])
        slot = int(slots[0])
        self.controller.observe_memory(slots, told)
        self.controller.confirm_memory(Limits(slots, np.maximum(told, self.roster.of(slot, "memory"))))
        if slot not in [waiting.slot for waiting in self._those_waiting()]:
            until = max(now, self._settled) + _ASK
            self._waiting[slot] = _Waiting(seat, slot, ask.slot, now, until)
        self._try(self._waiting[slot], now)

    def confirm(self, seat: Seat, confirm: Confirm, now: float) -> None:
        """Memory has been taken, or not; whoever waits for it is looked at again."""
        self._hear(seat, now)
        slots, reported = self.roster.ours(seat, confirm.memory["slot"]), confirm.memory["value"]
        knew = np.full(len(slots), seat.post.acknowledged)
        self.controller.confirm_memory(Limits(slots, self._counted("memory", slots, reported, knew)))
        if seat.rows is not None:  # a report from before that waits for the next decision
            seat.rows = seat.rows.copy()
            _, theirs, confirmed = np.intersect1d(
                seat.rows["slot"], confirm.memory["slot"], return_indices=True
            )
            seat.rows["memory"][theirs] = reported[confirmed]
        for waiting in self._those_waiting():
            if waiting.orders.get(seat.number, seat.post.sent + 1) <= seat.post.acknowledged:
                del waiting.orders[seat.number]
                self._try(waiting, now)

    def _those_waiting(self) -> list[_Waiting]:
        """Without those that have left, or whose node has another stream and asks again."""
        roster = self.roster
        self._waiting = {
            slot: each
            for slot, each in self._waiting.items()
            if not each.seat.is_gone and slot in roster.paths and each.seat.ours[each.theirs] == slot
        }
        return list(self._waiting.values())

    def _try(self, waiting: _Waiting, now: float) -> None:
        """Grant it what there is; where that is too little, first take from others."""
        if now < self._settled:
            return
        limits, missing = self.controller.grants(np.array([waiting.slot]))
        if missing.any() and not waiting.orders and waiting.rounds:
            waiting.rounds -= 1
            waiting.orders = self._take_urgently(missing)
        if missing.any() and waiting.orders and now < waiting.until:
            return
        del self._waiting[waiting.slot]
        self._relieve(waiting, limits, now)

    def _relieve(self, waiting: _Waiting, limits: Limits, now: float) -> None:
        """What it gets, or that there is nothing."""
        seat, slot = waiting.seat, waiting.slot
        before, after = self.roster.of(slot, "memory"), float(limits.values[0])
        is_more = after > before
        seat.say(Relief(waiting.theirs, after if is_more else None))
        if is_more:
            self._order("memory", limits, np.array([seat.post.sent]))
        self.roster.known["traps" if is_more else "refusals"][slot] += 1
        pool = self.controller.pools[int(self.roster.of(slot, "pool"))].name
        path = f"{seat.name}:{self.roster.paths[slot]}"
        self._notice(Grant(path, pool, before, after if is_more else before, now - waiting.since))

    def _take_urgently(self, missing: Array) -> dict[int, int]:
        """Order what is missing from everyone with room; whose word there is to wait for."""
        takes = self.controller.urgent_memory_takes(missing)
        asked = {}
        for seat, (rows,) in self.roster.split(
            [seat for seat in self.roster.seats.values() if not seat.former], [takes]
        ):
            if len(rows):
                seat.say(Orders(memory_takes=rows, urgent=True))
                asked[seat.number] = seat.post.sent
        return asked

    def _count(self, due: Sequence[Seat]) -> None:
        """What the reports say is used and in force."""
        if not due:
            return
        rows = np.frombuffer(b"".join([seat.rows.tobytes() for seat in due if seat.rows is not None]), ROW)
        slots = np.concatenate([seat.slots for seat in due])
        knew = np.repeat([seat.knew for seat in due], [len(seat.slots) for seat in due])
        self.controller.observe(slots, rows["used"], rows["throttled"] > 0)
        self.controller.observe_memory(slots, rows["memory_used"])
        self.controller.confirm(Limits(slots, self._counted("cpus", slots, rows["cpus"], knew)))
        self.controller.confirm_memory(Limits(slots, self._counted("memory", slots, rows["memory"], knew)))

    def _counted(self, what: str, slots: Indices, reported: Array, knew: Indices) -> Array:
        """Limits in force, or higher ones ordered with a message that the agent had not heard yet."""
        under_way = self.roster.known[f"{what}_with"][slots] > knew
        return np.where(under_way, np.maximum(reported, self.roster.known[what][slots]), reported)

    def _order(self, what: str, limits: Limits, with_messages: Indices) -> None:
        """These grow, and count from now on."""
        confirm = self.controller.confirm if what == "cpus" else self.controller.confirm_memory
        confirm(limits)
        self.roster.known[what][limits.slots] = limits.values
        self.roster.known[f"{what}_with"][limits.slots] = with_messages

    def _decided(self, due: Sequence[Seat], now: float) -> list[Limits]:
        """CPU to take and to give, memory to take and to give, for those who are about to be answered."""
        hears = np.zeros(self.roster.numbers(), dtype=bool)
        hears[[seat.number for seat in due]] = True

        def heard(limits: Limits) -> Limits:
            chosen = hears[self.roster.nodes(limits.slots)]
            return Limits(limits.slots[chosen], limits.values[chosen])

        reclaims = now - self._reclaimed >= self.controller.settings.every
        self._reclaimed = now if reclaims else self._reclaimed
        bare = self.controller.column("memory") == 0  # and memory is ours: no limit yet
        bare &= self._trapping[self.controller.column("pool").astype(np.intp)]
        new = heard(Limits(self.controller.slots[bare], np.zeros(int(bare.sum()))))
        return [
            heard(self.controller.takes()),
            heard(self.controller.gives()),
            heard(self.controller.memory_takes()) if reclaims else _nothing(),
            self.controller.first_memory(new.slots),
        ]

    def _send(self, due: Sequence[Seat], parts: Sequence[Limits]) -> None:
        """Answer; what grows counts from now on."""
        sent = np.zeros(self.roster.numbers(), dtype=np.intp)
        for seat, (cpu_takes, cpu_gives, memory_takes, memory_gives) in self.roster.split(due, parts):
            seat.say(Orders(cpu_takes, cpu_gives, memory_takes, memory_gives))
            seat.rows, sent[seat.number] = None, seat.post.sent
        for what, part in (("cpus", parts[1]), ("memory", parts[3])):
            self._order(what, part, sent[self.roster.nodes(part.slots)])

    def _drop_silent(self, now: float) -> None:
        for seat in list(self.roster.seats.values()):
            if now - seat.heard > self.patience + _RELEASING:
                self.roster.remove(seat)

    def _hear(self, seat: Seat, now: float) -> None:
        """A sign of life, unless it comes too late, or from somebody who talks without listening."""
        if seat.is_gone:
            raise WireError(
                "this node has been silent for too long, or has another stream; it has to register anew"
            )
        seat.said += 1
        if seat.said > _MOST_SAID + 2 * len(seat.slots) or len(seat.outbox) > _MOST_UNREAD:
            raise WireError("a node says too much in one period, or does not read the answers")
        seat.heard = now


def _nothing() -> Limits:
    return Limits(np.empty(0, np.intp), np.empty(0))
