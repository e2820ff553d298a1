"""All nodes' containers in one controller: what agents report goes in, what they are to do comes out.

Caps hold although messages are under way. A limit that is to shrink counts as before until its agent reports
that it has; one that is to grow counts from the moment it is ordered. A node that is not heard of keeps
counting until its agent, which then has heard nothing either, has put back safe limits. And a controller that
has just begun gives nothing until every agent of its predecessor has either registered or given up.

Time is the monotonic clock's throughout: a jump of the wall clock changes nothing here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.agent import Grant, Notice
from trimtab.resize.allocation import Array, Indices, MemorySettings
from trimtab.resize.controller import Controller, SlotLimits
from trimtab.resize.link.wire import (
    LIMIT,
    MOST_CONTAINERS,
    ROW,
    MemoryConfirmation,
    MemoryGrant,
    MemoryRequest,
    Message,
    MessageStream,
    Orders,
    Report,
    Rows,
    Welcome,
    WireError,
)
from trimtab.resize.policies.policy import SlotColumns
from trimtab.resize.pool import Pool
from trimtab.resize.status import ContainerRow, PoolStatus

PATIENCE = 2.0  # s that either side may be silent
_RELEASING = 0.5  # s that an agent takes to put back safe limits
_MOST_MESSAGES = 100  # messages of a node in one period, and two more for every container
_MOST_UNREAD = 100  # messages that wait for a node to read them
_ASK = 0.2  # s in which memory for a container that stands still must be found
_LIMITS = ("cpus", "used", "memory", "memory_used")
_COUNTS = ("throttles", "traps", "refusals")


@dataclass(slots=True, eq=False)
class NodeSession:
    """A node's session: its stream, and its containers' slots."""

    name: str
    number: int
    messages: MessageStream
    heard: float  # monotonic, s
    wake: Callable[[], None]  # there is something in the outbox
    outbox: list[bytes] = field(default_factory=list)
    ours: Indices = field(default_factory=lambda: np.empty(0, np.intp))  # our slot by theirs; -1 for none
    former: dict[str, int] = field(default_factory=dict)  # our slots by path, of the stream before this one
    rows: Rows | None = None  # of the latest report, until the next orders answer it
    slots: Indices = field(default_factory=lambda: np.empty(0, np.intp))  # ours, of these rows
    knew: int = 0  # our last message that the agent had heard when it reported
    message_count: int = 0  # messages since the last decision
    is_gone: bool = False

    def send(self, message: Message) -> None:
        """Put it in the outbox."""
        self.outbox.append(self.messages.pack(message))
        self.wake()


class NodeRegistry:
    """Nodes by name, and what is known of their containers beyond what the controller knows."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.sessions: dict[str, NodeSession] = {}
        self.paths: dict[int, str] = {}
        # By slot: whose it is and what they call it; grown limits under way, and with which message.
        self.known = SlotColumns(
            node=-1, theirs=0, cpus=0, cpus_with=0, memory=0, memory_with=0, throttles=0, traps=0, refusals=0
        )

    def session(
        self, name: str, messages: MessageStream, now: float, wake: Callable[[], None]
    ) -> NodeSession:
        """A session for a node; containers of a former one count until the first report."""
        before = self.sessions.get(name)
        session = NodeSession(name, before.number if before else self._free_number(), messages, now, wake)
        if before is not None:
            before.is_gone = True
            session.former = {self.paths[slot]: slot for slot in self._slots_of(before).tolist()}
        self.sessions[name] = session
        return session

    def take_in(self, session: NodeSession, report: Report) -> None:
        """Apply leaves and joins, and drop containers of the former stream that are no longer there."""
        if len(report.leaves):
            leaving = self.ours(session, report.leaves)
            session.ours[report.leaves] = -1
            self._leave(leaving)
        had_others = bool(session.former)
        if report.joins:
            self._join(session, report)
        if had_others:
            self._leave(np.setdiff1d(self._slots_of(session), session.ours))
            session.former = {}

    def remove(self, session: NodeSession) -> None:
        """A node is gone with all its containers."""
        session.is_gone = True
        self._leave(self._slots_of(session))
        del self.sessions[session.name]

    def ours(self, session: NodeSession, theirs: Rows) -> Indices:
        """Our slots for theirs; all must be known."""
        try:
            slots = session.ours[theirs]
        except IndexError:
            slots = np.array([-1])
        if (slots < 0).any():
            raise WireError("a message names a container that has not joined")
        return np.asarray(slots)

    def split(
        self, sessions: Sequence[NodeSession], parts: Sequence[SlotLimits]
    ) -> Iterator[tuple[NodeSession, list[Rows]]]:
        """Each node's own rows of every part, by its own slots."""
        tables = []
        for part in parts:
            nodes, theirs = self.nodes(part.slots), self.known["theirs"][part.slots]
            order = np.lexsort((theirs, nodes))
            rows = np.empty(len(order), LIMIT)
            rows["slot"], rows["value"] = theirs[order], part.values[order]
            tables.append((rows, np.searchsorted(nodes[order], np.arange(self.numbers() + 1)).tolist()))
        for session in sessions:
            yield session, [rows[edges[session.number] : edges[session.number + 1]] for rows, edges in tables]

    def nodes(self, slots: Indices) -> Indices:
        """Whose these are, by number."""
        return self.known["node"][slots].astype(np.intp)

    def numbers(self) -> int:
        """One more than the highest number of a node."""
        return max((session.number for session in self.sessions.values()), default=-1) + 1

    def of(self, slot: int, column: str) -> float:
        """One container's value in a column of the controller."""
        return float(self.controller.column(column)[np.searchsorted(self.controller.slots, slot)])

    def _join(self, session: NodeSession, report: Report) -> None:
        """New containers, or those of the stream before under new numbers."""
        self._check_joins(session, report)
        wanted = np.array([join.slot for join in report.joins])
        rows = report.rows[np.searchsorted(report.rows["slot"], wanted)]
        slots = []
        for join, row in zip(report.joins, rows, strict=True):
            slot = session.former.pop(join.path, None)
            if slot is None or self.of(slot, "pool") != join.pool:
                slot = self.controller.join(join.pool, row["cpus"], row["memory"], row["memory_used"])
            self.paths[slot] = join.path
            slots.append(slot)
        ours = np.array(slots)
        self.known.reach(ours)
        self.known["node"][ours], self.known["theirs"][ours] = session.number, wanted
        for name in ("cpus_with", "memory_with"):  # what the stream before had ordered is void
            self.known[name][ours] = 0
        room = np.full(max(0, int(wanted.max()) + 1 - len(session.ours)), -1, dtype=np.intp)
        session.ours = np.concatenate([session.ours, room])
        session.ours[wanted] = ours

    def _check_joins(self, session: NodeSession, report: Report) -> None:
        if len(report.rows) > MOST_CONTAINERS:
            raise WireError(f"a node has at most {MOST_CONTAINERS} containers")
        if any(join.pool >= len(self.controller.pools) for join in report.joins):
            raise WireError("a container joins a pool that there is not")
        wanted = np.array([join.slot for join in report.joins])
        if not np.isin(wanted, report.rows["slot"]).all():
            raise WireError("a container joins without a row of its own")
        if (session.ours[wanted[wanted < len(session.ours)]] >= 0).any():
            raise WireError("a container joins under the number of another")

    def _leave(self, slots: Indices) -> None:
        self.controller.leave(slots)
        self.known.forget(slots)
        for slot in slots.tolist():
            self.paths.pop(slot, None)

    def _slots_of(self, session: NodeSession) -> Indices:
        everyone = self.controller.slots
        return np.asarray(everyone[self.nodes(everyone) == session.number])

    def _free_number(self) -> int:
        taken = {session.number for session in self.sessions.values()}
        return next(number for number in range(len(taken) + 1) if number not in taken)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A container that stands still until memory for it is found."""

    session: NodeSession
    slot: int  # ours
    theirs: int
    since: float
    until: float
    rounds: int = 3  # of taking from others; what they use is known only as of their last reports
    orders: dict[int, int] = field(default_factory=dict)  # by node: those it has not confirmed yet


class NodeFleet:
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
        self.registry = NodeRegistry(self.controller)
        self._settled = now + patience + _RELEASING if settle else now
        self._reclaimed = now
        self._waiting: dict[int, _Waiting] = {}
        self._notice = notice
        self._welcome = Welcome(self.controller.pools, patience)
        self._trapping = np.array([self.controller.traps(number) for number in range(len(pools))])

    def register(
        self, name: str, messages: MessageStream, now: float, wake: Callable[[], None]
    ) -> NodeSession:
        """A node says hello; one of that name that was here before is replaced, and keeps counting until
        the new stream's first report says what there is."""
        session = self.registry.session(name, messages, now, wake)
        session.send(self._welcome)
        return session

    def report(self, session: NodeSession, report: Report, now: float) -> None:
        """Take in who came and went, and keep the rest for the next orders."""
        self._note_message(session, now)
        self.registry.take_in(session, report)
        session.slots = self.registry.ours(session, report.rows["slot"])
        session.rows, session.knew = report.rows, session.messages.acknowledged
        self.registry.known["throttles"][session.slots] += report.rows["throttled"]

    def decide(self, seconds: float, now: float) -> None:
        """One period: count what is in force, decide, and answer every node that has reported since."""
        self._drop_silent(now)
        for session in self.registry.sessions.values():
            session.message_count = 0
        due = [session for session in self.registry.sessions.values() if session.rows is not None]
        self._count(due)
        self.controller.decide(seconds)
        self._send(due, self._decided(due, now) if now >= self._settled else [_nothing()] * 4)
        for waiting in self._those_waiting():
            self._try(waiting, now)

    def request_memory(self, session: NodeSession, request: MemoryRequest, now: float) -> None:
        """A container stands still: grant it memory, or find some first."""
        self._note_message(session, now)
        slots, in_force = self.registry.ours(session, np.array([request.slot])), np.array([request.memory])
        slot = int(slots[0])
        self.controller.observe_memory(slots, in_force)
        self.controller.confirm_memory(
            SlotLimits(slots, np.maximum(in_force, self.registry.of(slot, "memory")))
        )
        if slot not in [waiting.slot for waiting in self._those_waiting()]:
            until = max(now, self._settled) + _ASK
            self._waiting[slot] = _Waiting(session, slot, request.slot, now, until)
        self._try(self._waiting[slot], now)

    def confirm(self, session: NodeSession, confirm: MemoryConfirmation, now: float) -> None:
        """Memory has been taken, or not; whoever waits for it is looked at again."""
        self._note_message(session, now)
        slots, reported = self.registry.ours(session, confirm.memory["slot"]), confirm.memory["value"]
        knew = np.full(len(slots), session.messages.acknowledged)
        self.controller.confirm_memory(SlotLimits(slots, self._counted("memory", slots, reported, knew)))
        if session.rows is not None:  # a report from before that waits for the next decision
            session.rows = session.rows.copy()
            _, theirs, confirmed = np.intersect1d(
                session.rows["slot"], confirm.memory["slot"], return_indices=True
            )
            session.rows["memory"][theirs] = reported[confirmed]
        for waiting in self._those_waiting():
            if waiting.orders.get(session.number, session.messages.sent + 1) <= session.messages.acknowledged:
                del waiting.orders[session.number]
                self._try(waiting, now)

    def _those_waiting(self) -> list[_Waiting]:
        """Without those that have left, or whose node has another stream and asks again."""
        registry = self.registry
        self._waiting = {
            slot: each
            for slot, each in self._waiting.items()
            if not each.session.is_gone and slot in registry.paths and each.session.ours[each.theirs] == slot
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
        self._grant_memory(waiting, limits, now)

    def _grant_memory(self, waiting: _Waiting, limits: SlotLimits, now: float) -> None:
        """Send the container its grant, or that there is none."""
        session, slot = waiting.session, waiting.slot
        before, after = self.registry.of(slot, "memory"), float(limits.values[0])
        is_more = after > before
        session.send(MemoryGrant(waiting.theirs, after if is_more else None))
        if is_more:
            self._order("memory", limits, np.array([session.messages.sent]))
        self.registry.known["traps" if is_more else "refusals"][slot] += 1
        pool = self.controller.pools[int(self.registry.of(slot, "pool"))].name
        path = f"{session.name}:{self.registry.paths[slot]}"
        self._notice(Grant(path, pool, before, after if is_more else before, now - waiting.since))

    def _take_urgently(self, missing: Array) -> dict[int, int]:
        """Order what is missing from everyone with room; whose word there is to wait for."""
        takes = self.controller.urgent_memory_takes(missing)
        requested = {}
        for session, (rows,) in self.registry.split(
            [session for session in self.registry.sessions.values() if not session.former], [takes]
        ):
            if len(rows):
                session.send(Orders(memory_takes=rows, urgent=True))
                requested[session.number] = session.messages.sent
        return requested

    def _count(self, due: Sequence[NodeSession]) -> None:
        """Use and limits in force by the reports."""
        if not due:
            return
        rows = np.frombuffer(
            b"".join([session.rows.tobytes() for session in due if session.rows is not None]), ROW
        )
        slots = np.concatenate([session.slots for session in due])
        knew = np.repeat([session.knew for session in due], [len(session.slots) for session in due])
        self.controller.observe(slots, rows["used"], rows["throttled"] > 0)
        self.controller.observe_memory(slots, rows["memory_used"])
        self.controller.confirm(SlotLimits(slots, self._counted("cpus", slots, rows["cpus"], knew)))
        self.controller.confirm_memory(
            SlotLimits(slots, self._counted("memory", slots, rows["memory"], knew))
        )

    def _counted(self, what: str, slots: Indices, reported: Array, knew: Indices) -> Array:
        """Limits in force, or higher ones ordered with a message that the agent had not heard yet."""
        under_way = self.registry.known[f"{what}_with"][slots] > knew
        return np.where(under_way, np.maximum(reported, self.registry.known[what][slots]), reported)

    def _order(self, what: str, limits: SlotLimits, with_messages: Indices) -> None:
        """These grow, and count from now on."""
        confirm = self.controller.confirm if what == "cpus" else self.controller.confirm_memory
        confirm(limits)
        self.registry.known[what][limits.slots] = limits.values
        self.registry.known[f"{what}_with"][limits.slots] = with_messages

    def _decided(self, due: Sequence[NodeSession], now: float) -> list[SlotLimits]:
        """CPU to take and to give, memory to take and to give, for those who are about to be answered."""
        hears = np.zeros(self.registry.numbers(), dtype=bool)
        hears[[session.number for session in due]] = True

        def heard(limits: SlotLimits) -> SlotLimits:
            chosen = hears[self.registry.nodes(limits.slots)]
            return SlotLimits(limits.slots[chosen], limits.values[chosen])

        reclaims = now - self._reclaimed >= self.controller.settings.every
        self._reclaimed = now if reclaims else self._reclaimed
        bare = self.controller.column("memory") == 0  # and memory is ours: no limit yet
        bare &= self._trapping[self.controller.column("pool").astype(np.intp)]
        new = heard(SlotLimits(self.controller.slots[bare], np.zeros(int(bare.sum()))))
        return [
            heard(self.controller.takes()),
            heard(self.controller.gives()),
            heard(self.controller.memory_takes()) if reclaims else _nothing(),
            self.controller.first_memory(new.slots),
        ]

    def _send(self, due: Sequence[NodeSession], parts: Sequence[SlotLimits]) -> None:
        """Answer; what grows counts from now on."""
        sent = np.zeros(self.registry.numbers(), dtype=np.intp)
        for session, (cpu_takes, cpu_gives, memory_takes, memory_gives) in self.registry.split(due, parts):
            session.send(Orders(cpu_takes, cpu_gives, memory_takes, memory_gives))
            session.rows, sent[session.number] = None, session.messages.sent
        for what, part in (("cpus", parts[1]), ("memory", parts[3])):
            self._order(what, part, sent[self.registry.nodes(part.slots)])

    def _drop_silent(self, now: float) -> None:
        for session in list(self.registry.sessions.values()):
            if now - session.heard > self.patience + _RELEASING:
                self.registry.remove(session)

    def _note_message(self, session: NodeSession, now: float) -> None:
        """A sign of life, unless it comes too late, or from somebody who talks without listening."""
        if session.is_gone:
            raise WireError(
                "this node has been silent for too long, or has another stream; it has to register anew"
            )
        session.message_count += 1
        if (
            session.message_count > _MOST_MESSAGES + 2 * len(session.slots)
            or len(session.outbox) > _MOST_UNREAD
        ):
            raise WireError("a node sends too many messages in one period, or does not read the answers")
        session.heard = now


def _nothing() -> SlotLimits:
    return SlotLimits(np.empty(0, np.intp), np.empty(0))


def fleet_status(fleet: NodeFleet, time: float, late: int, most: int | None = None) -> PoolStatus:
    """Everyone, or the busiest `most`; a container is called by its node and its path."""
    controller, slots, pools = fleet.controller, fleet.controller.slots, fleet.controller.pools
    pool = controller.column("pool").astype(np.intp)
    shown = np.argsort(-controller.column("used"), kind="stable")[:most]
    limits = np.stack([controller.column(name)[shown] for name in _LIMITS], axis=1).tolist()
    fleet.registry.known.reach(slots)
    counts = (
        np.stack([fleet.registry.known[name][slots[shown]] for name in _COUNTS], axis=1).astype(int).tolist()
    )
    names = {session.number: session.name for session in fleet.registry.sessions.values()}
    nodes = fleet.registry.known["node"][slots[shown]].tolist()
    rows = tuple(
        ContainerRow(f"{names[node]}:{fleet.registry.paths[slot]}", pools[number].name, *limit, *count)
        for slot, node, number, limit, count in zip(
            slots[shown].tolist(), nodes, pool[shown].tolist(), limits, counts, strict=True
        )
    )
    cpus, memory = (np.bincount(pool, controller.column(name), len(pools)) for name in ("cpus", "memory"))
    given = {each.name: (float(cpus[number]), float(memory[number])) for number, each in enumerate(pools)}
    caps = {each.name: (each.cpu, each.memory) for each in pools}
    return PoolStatus(time, late, caps, rows, given, len(slots) - len(rows))
