"""Whose container is whose: every node's own numbers beside the controller's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.controller import Controller, Limits
from trimtab.resize.link.wire import LIMIT, MOST_CONTAINERS, Message, Post, Report, Rows, WireError
from trimtab.resize.policies.policy import Memory
from trimtab.resize.sharing import Indices


@dataclass(slots=True, eq=False)
class Seat:
    """A node, while it is heard of."""

    name: str
    number: int
    post: Post
    heard: float  # monotonic, s
    wake: Callable[[], None]  # there is something in the outbox
    outbox: list[bytes] = field(default_factory=list)
    ours: Indices = field(default_factory=lambda: np.empty(0, np.intp))  # our slot by theirs; -1 for none
    former: dict[str, int] = field(default_factory=dict)  # our slots by path, of the stream before this one
    rows: Rows | None = None  # of the latest report, until the next orders answer it
    slots: Indices = field(default_factory=lambda: np.empty(0, np.intp))  # ours, of these rows
    knew: int = 0  # our last message that the agent had heard when it reported
    said: int = 0  # messages since the last decision
    is_gone: bool = False

    def say(self, message: Message) -> None:
        """Put it in the outbox."""
        self.outbox.append(self.post.pack(message))
        self.wake()


class Roster:
    """Nodes by name, and what is known of their containers beyond what the controller knows."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.seats: dict[str, Seat] = {}
        self.paths: dict[int, str] = {}
        # By slot: whose it is and what they call it; grown limits under way, and with which message.
        self.known = Memory(
            node=-1, theirs=0, cpus=0, cpus_with=0, memory=0, memory_with=0, throttles=0, traps=0, refusals=0
        )

    def seat(self, name: str, post: Post, now: float, wake: Callable[[], None]) -> Seat:
        """A seat for a node; if it had one, its containers count until a report says what there is now."""
        before = self.seats.get(name)
        seat = Seat(name, before.number if before else self._free_number(), post, now, wake)
        if before is not None:
            before.is_gone = True
            seat.former = {self.paths[slot]: slot for slot in self._slots_of(before).tolist()}
        self.seats[name] = seat
        return seat

    def take_in(self, seat: Seat, report: Report) -> None:
        """Who left, who joined, and who of the stream before is no longer there."""
        if len(report.leaves):
            leaving = self.ours(seat, report.leaves)
            seat.ours[report.leaves] = -1
            self._leave(leaving)
        had_others = bool(seat.former)
        if report.joins:
            self._join(seat, report)
        if had_others:
            self._leave(np.setdiff1d(self._slots_of(seat), seat.ours))
            seat.former = {}

    def remove(self, seat: Seat) -> None:
        """A node is gone with all its containers."""
        seat.is_gone = True
        self._leave(self._slots_of(seat))
        del self.seats[seat.name]

    def ours(self, seat: Seat, theirs: Rows) -> Indices:
        """Our slots for theirs; all must be known."""
        try:
            slots = seat.ours[theirs]
        except IndexError:
            slots = np.array([-1])
        if (slots < 0).any():
            raise WireError("a message names a container that has not joined")
        return np.asarray(slots)

    def split(self, seats: Sequence[Seat], parts: Sequence[Limits]) -> Iterator[tuple[Seat, list[Rows]]]:
        """Each node's own rows of every part, by its own slots."""
        tables = []
        for part in parts:
            nodes, theirs = self.nodes(part.slots), self.known["theirs"][part.slots]
            order = np.lexsort((theirs, nodes))
            rows = np.empty(len(order), LIMIT)
            rows["slot"], rows["value"] = theirs[order], part.values[order]
            tables.append((rows, np.searchsorted(nodes[order], np.arange(self.numbers() + 1)).tolist()))
        for seat in seats:
            yield seat, [rows[edges[seat.number] : edges[seat.number + 1]] for rows, edges in tables]

    def nodes(self, slots: Indices) -> Indices:
        """Whose these are, by number."""
        return self.known["node"][slots].astype(np.intp)

    def numbers(self) -> int:
        """One more than the highest number of a node."""
        return max((seat.number for seat in self.seats.values()), default=-1) + 1

    def of(self, slot: int, column: str) -> float:
        """What the controller knows of one container."""
        return float(self.controller.column(column)[np.searchsorted(self.controller.slots, slot)])

    def _join(self, seat: Seat, report: Report) -> None:
        """New containers, or those of the stream before under new numbers."""
        self._check_joins(seat, report)
        wanted = np.array([join.slot for join in report.joins])
        rows = report.rows[np.searchsorted(report.rows["slot"], wanted)]
        slots = []
        for join, row in zip(report.joins, rows, strict=True):
            slot = seat.former.pop(join.path, None)
            if slot is None or self.of(slot, "pool") != join.pool:
                slot = self.controller.join(join.pool, row["cpus"], row["memory"], row["memory_used"])
            self.paths[slot] = join.path
            slots.append(slot)
        ours = np.array(slots)
        self.known.reach(ours)
        self.known["node"][ours], self.known["theirs"][ours] = seat.number, wanted
        for name in ("cpus_with", "memory_with"):  # what the stream before had ordered is void
            self.known[name][ours] = 0
        room = np.full(max(0, int(wanted.max()) + 1 - len(seat.ours)), -1, dtype=np.intp)
        seat.ours = np.concatenate([seat.ours, room])
        seat.ours[wanted] = ours

    def _check_joins(self, seat: Seat, report: Report) -> None:
        if len(report.rows) > MOST_CONTAINERS:
            raise WireError(f"a node has at most {MOST_CONTAINERS} containers")
        if any(join.pool >= len(self.controller.pools) for join in report.joins):
            raise WireError("a container joins a pool that there is not")
        wanted = np.array([join.slot for join in report.joins])
        if not np.isin(wanted, report.rows["slot"]).all():
            raise WireError("a container joins without a row of its own")
        if (seat.ours[wanted[wanted < len(seat.ours)]] >= 0).any():
            raise WireError("a container joins under the number of another")

    def _leave(self, slots: Indices) -> None:
        self.controller.leave(slots)
        self.known.forget(slots)
        for slot in slots.tolist():
            self.paths.pop(slot, None)

    def _slots_of(self, seat: Seat) -> Indices:
        everyone = self.controller.slots
        return np.asarray(everyone[self.nodes(everyone) == seat.number])

    def _free_number(self) -> int:
        taken = {seat.number for seat in self.seats.values()}
        return next(number for number in range(len(taken) + 1) if number not in taken)
