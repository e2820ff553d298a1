"""All nodes' containers in one controller: agents' reports go in, orders come out.

Caps hold although messages are in flight. A limit that shrinks counts with its old value until its agent
reports the new one; one that grows counts from when it is ordered. A silent node keeps counting until its
agent, which then has received nothing either, has restored safe limits. And a controller that has just
started gives nothing until every agent of its predecessor has either registered or given up.

All times are of the monotonic clock: a jump of the wall clock changes nothing.
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
_RELEASING = 0.5  # s that an agent takes to restore safe limits
_MOST_MESSAGES = 100  # messages of a node in one period, and two more for every container
_MOST_UNREAD = 100  # messages that wait for a node to read them
_ASK = 0.2  # s within which memory for a paused container must be found
_LIMITS = ("cpus", "used", "memory", "memory_used")
_COUNTS = ("throttles", "traps", "refusals")


@dataclass(slots=True, eq=False)
class NodeSession:
    """A node's session: its stream, and its containers by node slot and by fleet slot."""

    name: str
    number: int
    messages: MessageStream
    heard: float  # monotonic, s
    wake: Callable[[], None]  # called when a message is put in the outbox
    outbox: list[bytes] = field(default_factory=list)
    fleet_slots: Indices = field(default_factory=lambda: np.empty(0, np.intp))  # by node slot; -1 for none
    former: dict[str, int] = field(default_factory=dict)  # fleet slots by path, of the stream before this one
    rows: Rows | None = None  # of the latest report, until orders answer it
    slots: Indices = field(default_factory=lambda: np.empty(0, np.intp))  # fleet slots of these rows
    acknowledged: int = 0  # the last message that the agent had received when it reported
    message_count: int = 0  # messages since the last decision
    is_gone: bool = False

    def send(self, message: Message) -> None:
        self.outbox.append(self.messages.pack(message))
        self.wake()


class NodeRegistry:
    """Nodes by name, and their containers' paths, counts and orders in flight."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.sessions: dict[str, NodeSession] = {}
        self.paths: dict[int, str] = {}
        # By fleet slot: node and node slot; raised limits in flight, and the number of their message.
        self.columns = SlotColumns(
            node=-1,
            node_slot=0,
            cpus=0,
            cpus_with=0,
            memory=0,
            memory_with=0,
            throttles=0,
            traps=0,
            refusals=0,
        )

    def session(
        self, name: str, messages: MessageStream, now: float, wake: Callable[[], None]
    ) -> NodeSession:
        """A new session for a node; containers of its former one count until the first report."""
        before = self.sessions.get(name)
        taken = {session.number for session in self.sessions.values()}
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        session = NodeSession(name, before.number if before else free, messages, now, wake)
        if before is not None:
            before.is_gone = True
            session.former = {self.paths[slot]: slot for slot in self._slots_of(before).tolist()}
        self.sessions[name] = session
        return session

    def take_in(self, session: NodeSession, report: Report) -> None:
        """Apply leaves and joins, and remove containers of the former stream that are not reported."""
        if len(report.leaves):
            leaving = self.fleet_slots(session, report.leaves)
            session.fleet_slots[report.leaves] = -1
            self._leave(leaving)
        had_former = bool(session.former)
        if report.joins:
            self._join(session, report)
        if had_former:
            self._leave(np.setdiff1d(self._slots_of(session), session.fleet_slots))
            session.former = {}

    def remove(self, session: NodeSession) -> None:
        """Remove a node and all its containers."""
        session.is_gone = True
        self._leave(self._slots_of(session))
        del self.sessions[session.name]

    def fleet_slots(self, session: NodeSession, node_slots: Rows) -> Indices:
        """Fleet slots of a node's slots; WireError if one is unknown."""
        try:
            slots = session.fleet_slots[node_slots]
        except IndexError:
            slots = np.array([-1])
        if (slots < 0).any():
            raise WireError("a message names a container that has not joined")
        return np.asarray(slots)

    def split(
        self, sessions: Sequence[NodeSession], parts: Sequence[SlotLimits]
    ) -> Iterator[tuple[NodeSession, list[Rows]]]:
        """The rows of every part for each node, by its node slots."""
        tables = []
        for part in parts:
            nodes, node_slots = self.nodes(part.slots), self.columns["node_slot"][part.slots]
            order = np.lexsort((node_slots, nodes))
            rows = np.empty(len(order), LIMIT)
            rows["slot"], rows["value"] = node_slots[order], part.values[order]
            tables.append((rows, np.searchsorted(nodes[order], np.arange(self.numbers() + 1)).tolist()))
        for session in sessions:
            yield session, [rows[edges[session.number] : edges[session.number + 1]] for rows, edges in tables]

    def nodes(self, slots: Indices) -> Indices:
        """Numbers of the nodes of these slots."""
        return self.columns["node"][slots].astype(np.intp)

    def numbers(self) -> int:
        """One more than the highest number of a node."""
        return max((session.number for session in self.sessions.values()), default=-1) + 1

    def of(self, slot: int, column: str) -> float:
        """One container's value in a column of the controller."""
        return float(self.controller.column(column)[np.searchsorted(self.controller.slots, slot)])

    def _join(self, session: NodeSession, report: Report) -> None:
        """Add new containers, or give those of the former stream their new node slots."""
        if len(report.rows) > MOST_CONTAINERS:
            raise WireError(f"a node has at most {MOST_CONTAINERS} containers, not {len(report.rows)}")
        if any(join.pool >= len(self.controller.pools) for join in report.joins):
            raise WireError("a container joins a pool that does not exist")
        node_slots = np.array([join.slot for join in report.joins])
        if not np.isin(node_slots, report.rows["slot"]).all():
            raise WireError("a container joins without a row")
        if (session.fleet_slots[node_slots[node_slots < len(session.fleet_slots)]] >= 0).any():
            raise WireError("a container joins with the slot of another")
        rows = report.rows[np.searchsorted(report.rows["slot"], node_slots)]
        slots = []
        for join, row in zip(report.joins, rows, strict=True):
            slot = session.former.pop(join.path, None)
            if slot is None or self.of(slot, "pool") != join.pool:
                slot = self.controller.join(join.pool, row["cpus"], row["memory"], row["memory_used"])
            self.paths[slot] = join.path
            slots.append(slot)
        fleet_slots = np.array(slots)
        self.columns.reach(fleet_slots)
        self.columns["node"][fleet_slots], self.columns["node_slot"][fleet_slots] = session.number, node_slots
        for name in ("cpus_with", "memory_with"):  # orders of the former stream are void
            self.columns[name][fleet_slots] = 0
        room = np.full(max(0, int(node_slots.max()) + 1 - len(session.fleet_slots)), -1, dtype=np.intp)
        session.fleet_slots = np.concatenate([session.fleet_slots, room])
        session.fleet_slots[node_slots] = fleet_slots

    def _leave(self, slots: Indices) -> None:
        self.controller.leave(slots)
        self.columns.forget(slots)
        for slot in slots.tolist():
            self.paths.pop(slot, None)

    def _slots_of(self, session: NodeSession) -> Indices:
        slots = self.controller.slots
        return np.asarray(slots[self.nodes(slots) == session.number])


@dataclass(slots=True, eq=False)
class _Waiting:
    """A container that is paused until memory for it is found."""

    session: NodeSession
    slot: int  # of the fleet
    node_slot: int
    since: float
    until: float
    rounds: int = 3  # of taking from others, whose use is only known from their last reports
    orders: dict[int, int] = field(default_factory=dict)  # unconfirmed message by node


class NodeFleet:
    """One controller for the containers of many nodes; no I/O."""

    def __init__(
        self,
        pools: Sequence[Pool],
        now: float,
        settle: bool = True,
        patience: float = PATIENCE,
        memory: MemorySettings | None = None,
        notice: Notice = lambda grant: None,
    ) -> None:
        """Without `settle` there was no controller before, and giving begins at once."""
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
        """Open a session for a node; containers of its former session count until the first report."""
        session = self.registry.session(name, messages, now, wake)
        session.send(self._welcome)
        return session

    def report(self, session: NodeSession, report: Report, now: float) -> None:
        """Apply joins and leaves, and keep the rest for the next decision."""
        self._note_message(session, now)
        self.registry.take_in(session, report)
        session.slots = self.registry.fleet_slots(session, report.rows["slot"])
        session.rows, session.acknowledged = report.rows, session.messages.acknowledged
        self.registry.columns["throttles"][session.slots] += report.rows["throttled"]

    def decide(self, seconds: float, now: float) -> None:
        """One period: count limits in force, decide, and send orders to every node that has reported."""
        for session in list(self.registry.sessions.values()):
            session.message_count = 0
            if now - session.heard > self.patience + _RELEASING:
                self.registry.remove(session)
        due = [session for session in self.registry.sessions.values() if session.rows is not None]
        self._count(due)
        self.controller.decide(seconds)
        self._send(due, self._decided(due, now) if now >= self._settled else [_nothing()] * 4)
        for waiting in self._still_waiting():
            self._try(waiting, now)

    def request_memory(self, session: NodeSession, request: MemoryRequest, now: float) -> None:
        """Grant a paused container memory, or take some from others first."""
        self._note_message(session, now)
        slots, in_force = (
            self.registry.fleet_slots(session, np.array([request.slot])),
            np.array([request.memory]),
        )
        slot = int(slots[0])
        self.controller.observe_memory(slots, in_force)
        self.controller.confirm_memory(
            SlotLimits(slots, np.maximum(in_force, self.registry.of(slot, "memory")))
        )
        if slot not in [waiting.slot for waiting in self._still_waiting()]:
            until = max(now, self._settled) + _ASK
            self._waiting[slot] = _Waiting(session, slot, request.slot, now, until)
        self._try(self._waiting[slot], now)

    def confirm(self, session: NodeSession, confirm: MemoryConfirmation, now: float) -> None:
        """An agent confirms urgent orders; containers that wait for the memory are tried again."""
        self._note_message(session, now)
        slots, reported = self.registry.fleet_slots(session, confirm.memory["slot"]), confirm.memory["value"]
        acknowledged = np.full(len(slots), session.messages.acknowledged)
        self.controller.confirm_memory(
            SlotLimits(slots, self._counted("memory", slots, reported, acknowledged))
        )
        if session.rows is not None:  # an earlier report that waits for the next decision
            session.rows = session.rows.copy()
            _, rows, confirmed = np.intersect1d(
                session.rows["slot"], confirm.memory["slot"], return_indices=True
            )
            session.rows["memory"][rows] = reported[confirmed]
        for waiting in self._still_waiting():
            if waiting.orders.get(session.number, session.messages.sent + 1) <= session.messages.acknowledged:
                del waiting.orders[session.number]
                self._try(waiting, now)

    def _still_waiting(self) -> list[_Waiting]:
        """Paused containers, without those that have left or whose node has another stream and asks again."""
        self._waiting = {
            slot: waiting
            for slot, waiting in self._waiting.items()
            if not waiting.session.is_gone
            and slot in self.registry.paths
            and waiting.session.fleet_slots[waiting.node_slot] == slot
        }
        return list(self._waiting.values())

    def _try(self, waiting: _Waiting, now: float) -> None:
        """Grant it free memory; where that is too little, take from others first."""
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
        """Send the container its grant, or a refusal."""
        session, slot = waiting.session, waiting.slot
        before, after = self.registry.of(slot, "memory"), float(limits.values[0])
        is_more = after > before
        session.send(MemoryGrant(waiting.node_slot, after if is_more else None))
        if is_more:
            self._order("memory", limits, np.array([session.messages.sent]))
        self.registry.columns["traps" if is_more else "refusals"][slot] += 1
        pool = self.controller.pools[int(self.registry.of(slot, "pool"))].name
        path = f"{session.name}:{self.registry.paths[slot]}"
        self._notice(Grant(path, pool, before, after if is_more else before, now - waiting.since))

    def _take_urgently(self, missing: Array) -> dict[int, int]:
        """Order the missing memory from containers with room; message numbers to wait for, by node."""
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
        """Take use and limits in force from the reports."""
        if not due:
            return
        rows = np.frombuffer(
            b"".join([session.rows.tobytes() for session in due if session.rows is not None]), ROW
        )
        slots = np.concatenate([session.slots for session in due])
        acknowledged = np.repeat(
            [session.acknowledged for session in due], [len(session.slots) for session in due]
        )
        self.controller.observe(slots, rows["used"], rows["throttled"] > 0)
        self.controller.observe_memory(slots, rows["memory_used"])
        self.controller.confirm(SlotLimits(slots, self._counted("cpus", slots, rows["cpus"], acknowledged)))
        self.controller.confirm_memory(
            SlotLimits(slots, self._counted("memory", slots, rows["memory"], acknowledged))
        )

    def _counted(self, kind: str, slots: Indices, reported: Array, acknowledged: Indices) -> Array:
        """Limits in force, or higher ones ordered with a message that the agent had not received."""
        in_flight = self.registry.columns[f"{kind}_with"][slots] > acknowledged
        return np.where(in_flight, np.maximum(reported, self.registry.columns[kind][slots]), reported)

    def _order(self, kind: str, limits: SlotLimits, with_messages: Indices) -> None:
        """Count raised limits from now on."""
        confirm = self.controller.confirm if kind == "cpus" else self.controller.confirm_memory
        confirm(limits)
        self.registry.columns[kind][limits.slots] = limits.values
        self.registry.columns[f"{kind}_with"][limits.slots] = with_messages

    def _decided(self, due: Sequence[NodeSession], now: float) -> list[SlotLimits]:
        """CPU takes and gives, memory takes and gives, for the nodes that are due."""
        is_due = np.zeros(self.registry.numbers(), dtype=bool)
        is_due[[session.number for session in due]] = True

        def of_due(limits: SlotLimits) -> SlotLimits:
            chosen = is_due[self.registry.nodes(limits.slots)]
            return SlotLimits(limits.slots[chosen], limits.values[chosen])

        reclaims = now - self._reclaimed >= self.controller.settings.every
        self._reclaimed = now if reclaims else self._reclaimed
        bare = self.controller.column("memory") == 0  # no limit yet, although memory is managed
        bare &= self._trapping[self.controller.column("pool").astype(np.intp)]
        new = of_due(SlotLimits(self.controller.slots[bare], np.zeros(int(bare.sum()))))
        return [
            of_due(self.controller.takes()),
            of_due(self.controller.gives()),
            of_due(self.controller.memory_takes()) if reclaims else _nothing(),
            self.controller.first_memory(new.slots),
        ]

    def _send(self, due: Sequence[NodeSession], parts: Sequence[SlotLimits]) -> None:
        """Send orders; raised limits count from now on."""
        sent = np.zeros(self.registry.numbers(), dtype=np.intp)
        for session, (cpu_takes, cpu_gives, memory_takes, memory_gives) in self.registry.split(due, parts):
            session.send(Orders(cpu_takes, cpu_gives, memory_takes, memory_gives))
            session.rows, sent[session.number] = None, session.messages.sent
        for kind, part in (("cpus", parts[1]), ("memory", parts[3])):
            self._order(kind, part, sent[self.registry.nodes(part.slots)])

    def _note_message(self, session: NodeSession, now: float) -> None:
        """Note a heartbeat; WireError if it comes too late, or if the node sends without reading."""
        if session.is_gone:
            raise WireError(
                "this node was silent for too long, or has another stream; it has to register again"
            )
        session.message_count += 1
        if (
            session.message_count > _MOST_MESSAGES + 2 * len(session.slots)
            or len(session.outbox) > _MOST_UNREAD
        ):
            raise WireError("a node sends too many messages in one period, or does not read its orders")
        session.heard = now


def _nothing() -> SlotLimits:
    return SlotLimits(np.empty(0, np.intp), np.empty(0))


def fleet_status(fleet: NodeFleet, time: float, late: int, most: int | None = None) -> PoolStatus:
    """Status of all containers, or of the busiest `most`; paths begin with the node's name."""
    controller, slots, pools = fleet.controller, fleet.controller.slots, fleet.controller.pools
    pool = controller.column("pool").astype(np.intp)
    shown = np.argsort(-controller.column("used"), kind="stable")[:most]
    limits = np.stack([controller.column(name)[shown] for name in _LIMITS], axis=1).tolist()
    fleet.registry.columns.reach(slots)
    counts = (
        np.stack([fleet.registry.columns[name][slots[shown]] for name in _COUNTS], axis=1)
        .astype(int)
        .tolist()
    )
    names = {session.number: session.name for session in fleet.registry.sessions.values()}
    nodes = fleet.registry.columns["node"][slots[shown]].tolist()
    rows = tuple(
        ContainerRow(f"{names[node]}:{fleet.registry.paths[slot]}", pools[number].name, *limit, *count)
        for slot, node, number, limit, count in zip(
            slots[shown].tolist(), nodes, pool[shown].tolist(), limits, counts, strict=True
        )
    )
    cpus, memory = (np.bincount(pool, controller.column(name), len(pools)) for name in ("cpus", "memory"))
    given = {owner.name: (float(cpus[number]), float(memory[number])) for number, owner in enumerate(pools)}
    caps = {owner.name: (owner.cpu, owner.memory) for owner in pools}
    return PoolStatus(time, late, caps, rows, given, len(slots) - len(rows))
