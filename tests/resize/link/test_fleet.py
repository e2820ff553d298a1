"""One controller for many nodes, with messages under way, lost lines and restarts: caps hold all the same."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.resize import Grant, MemorySettings, Pool, Selector
from trimtab.resize.link.fleet import NodeFleet, NodeSession
from trimtab.resize.link.wire import (
    ROW,
    Hello,
    Join,
    MemoryConfirmation,
    MemoryGrant,
    MemoryRequest,
    MessageStream,
    Orders,
    Report,
    WireError,
    limits as limit_rows,
)

MIB = 2.0**20
POOL = Pool("shop", 4.0, 400 * MIB, (Selector("/*"),))
PATIENCE = 2.0


@dataclass
class Box:
    """A container as its node knows it."""

    path: str
    cpus: float = 0.0
    memory: float = 0.0
    used: float = 0.0
    memory_used: float = MIB
    throttled: bool = False


@dataclass
class NodeAgent:
    """A node that does as agents do, but reads its post only when asked."""

    name: str
    fleet: NodeFleet
    now: float
    boxes: dict[int, Box] = field(default_factory=dict)
    messages: MessageStream = field(default_factory=MessageStream)
    session: NodeSession | None = None
    reported: dict[int, tuple[Box, int]] = field(default_factory=dict)
    sent: dict[int, float] = field(default_factory=dict)
    until: float = -1.0
    heard: list[object] = field(default_factory=list)

    def register(self, now: float) -> None:
        """A new line; the first thing heard on it is the greeting."""
        self.messages, self.reported, self.sent = MessageStream(), {}, {}
        messages = MessageStream(9)
        messages.unpack(self._packed(Hello(), now))
        self.session = self.fleet.register(self.name, messages, now, lambda: None)
        self.read(now)

    def report(self, now: float) -> None:
        assert self.session is not None
        number = self.messages.sent + 1
        gone = sorted(slot for slot, (box, _) in self.reported.items() if self.boxes.get(slot) is not box)
        new = sorted(
            s for s, box in self.boxes.items() if s not in self.reported or self.reported[s][0] is not box
        )
        joins = tuple(Join(slot, 0, self.boxes[slot].path) for slot in new)
        kept = {slot: self.reported[slot][1] for slot in self.reported if slot not in gone}
        self.reported = {slot: (box, kept.get(slot, number)) for slot, box in self.boxes.items()}
        rows = np.zeros(len(self.boxes), ROW)
        for row, slot in zip(rows, sorted(self.boxes), strict=True):
            box = self.boxes[slot]
            row["slot"], row["used"], row["cpus"] = slot, box.used, box.cpus
            row["memory"], row["memory_used"], row["throttled"] = box.memory, box.memory_used, box.throttled
        self.send(Report(0.1, rows, joins, np.array(gone, dtype="<u4")), now)

    def send(self, message: Report | MemoryRequest | MemoryConfirmation, now: float) -> None:
        assert self.session is not None
        heard = self.session.messages.unpack(self._packed(message, now))
        if isinstance(heard, Report):
            self.fleet.report(self.session, heard, now)
        elif isinstance(heard, MemoryRequest):
            self.fleet.request_memory(self.session, heard, now)
        elif isinstance(heard, MemoryConfirmation):
            self.fleet.confirm(self.session, heard, now)

    def read(self, now: float, most: int = 100) -> None:
        """Read so much of the post, and do as it says."""
        while self.session is not None and self.session.outbox and most:
            most -= 1
            message = self.messages.unpack(self.session.outbox.pop(0))
            self.until = self.sent.get(self.messages.acknowledged, -1.0) + PATIENCE
            self.heard.append(message)
            if now > self.until:
                continue
            if isinstance(message, Orders):
                self._obey(message, now)
            elif isinstance(message, MemoryGrant) and message.memory and message.slot in self.boxes:
                self.boxes[message.slot].memory = message.memory

    def give_up(self) -> None:
        """Safe limits: nobody here counts any more."""
        self.session = None
        for box in self.boxes.values():
            box.cpus = box.memory = 0.0

    def _obey(self, orders: Orders, now: float) -> None:
        for rows, name, takes in (
            (orders.cpu_takes, "cpus", True),
            (orders.cpu_gives, "cpus", False),
            (orders.memory_takes, "memory", True),
            (orders.memory_gives, "memory", False),
        ):
            for slot, value in rows.tolist():
                box, since = self.reported.get(slot, (None, 0))
                if box is not None and self.boxes.get(slot) is box and since <= self.messages.acknowledged:
                    setattr(box, name, min(value, getattr(box, name)) if takes else value)
        if orders.urgent:
            slots = [slot for slot in orders.memory_takes["slot"].tolist() if slot in self.boxes]
            self.send(MemoryConfirmation(limit_rows(slots, [self.boxes[slot].memory for slot in slots])), now)

    def _packed(self, message: object, now: float) -> bytes:
        packed = self.messages.pack(message)  # type: ignore[arg-type]
        self.sent[self.messages.sent] = now
        return packed


def _fleet(settle: bool = False, **more: object) -> NodeFleet:
    return NodeFleet([POOL], 0.0, settle, PATIENCE, **more)  # type: ignore[arg-type]


def _rounds(fleet: NodeFleet, agents: list[NodeAgent], now: float, count: int = 5) -> float:
    """Everyone reports, is decided about, and follows its orders."""
    for _ in range(count):
        for agent in agents:
            agent.report(now)
        fleet.decide(0.1, now)
        for agent in agents:
            agent.read(now)
        now += 0.1
    return now


OFTEN = ["report", "decide", "read", "read one"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*OFTEN * 4, "ask", "ask", "come", "go", "break", "restart", "wait"]),
        st.integers(0, 2),
        st.floats(0, 4),
        st.booleans(),
    ),
    min_size=30,
    max_size=120,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_a_cap_holds_whatever_is_under_way_lost_or_restarted(
    steps: list[tuple[str, int, float, bool]],
) -> None:
    now, fleet = 0.0, _fleet()
    agents = [NodeAgent(f"n{number}", fleet, now, {0: Box("/a"), 1: Box("/b")}) for number in range(3)]
    for agent in agents:
        agent.register(now)
    now = _rounds(fleet, agents, now, 2)
    for what, who, much, flag in steps:
        now += 0.02
        agent = agents[who]
        for each in agents:
            if now > each.until:
                each.give_up()
        if what in ("break", "restart"):
            if what == "restart":
                fleet = NodeFleet([POOL], now, True, PATIENCE)
                for each in agents:
                    each.fleet, each.session = fleet, None
            agent.register(now)
            agent.report(now)
        elif what == "decide":
            fleet.decide(0.1, now)
        elif what == "wait":
            now += much / 2
        elif what == "come" and len(agent.boxes) < 4:
            slot = min(set(range(5)) - agent.boxes.keys())
            agent.boxes[slot] = Box(f"/{slot}", used=much, memory_used=MIB * (1 + 50 * much))
        elif what == "go" and agent.boxes:
            agent.boxes.pop(min(agent.boxes))
        elif agent.session is None or agent.session.is_gone:
            agent.register(now)
            agent.report(now)
        elif what == "report":
            for box in agent.boxes.values():
                box.used, box.throttled = min(much, box.cpus or much), flag
            agent.report(now)
        elif what == "ask" and agent.reported.keys() & agent.boxes.keys():
            slot = min(agent.reported.keys() & agent.boxes.keys())
            if agent.reported[slot][0] is agent.boxes[slot]:
                agent.send(MemoryRequest(slot, agent.boxes[slot].memory), now)
        elif what.startswith("read"):
            agent.read(now, 1 if what == "read one" else 100)
        alive = [box for each in agents if now <= each.until for box in each.boxes.values()]
        assert sum(box.cpus for box in alive) <= POOL.cpu + 1e-6
        assert sum(box.memory for box in alive) <= POOL.memory + 1e-3


def test_the_busy_node_gets_what_the_idle_one_does_not_use() -> None:
    fleet = _fleet()
    busy, idle = NodeAgent("busy", fleet, 0.0), NodeAgent("idle", fleet, 0.0)
    for agent in (busy, idle):
        agent.boxes[3] = Box("/a")
        agent.register(0.0)
    now = _rounds(fleet, [busy, idle], 0.0, 1)
    assert busy.boxes[3].cpus == pytest.approx(2.0)
    for _ in range(20):
        busy.boxes[3].used, busy.boxes[3].throttled = busy.boxes[3].cpus, True
        now = _rounds(fleet, [busy, idle], now, 1)
    assert busy.boxes[3].cpus > 3.5
    assert idle.boxes[3].cpus == pytest.approx(POOL.cpu_floor, abs=0.01)


def test_nothing_is_given_before_a_shrink_is_reported() -> None:
    fleet = _fleet()
    first, second = NodeAgent("first", fleet, 0.0), NodeAgent("second", fleet, 0.0)
    first.boxes[0] = Box("/a", used=4.0)
    first.register(0.0)
    now = _rounds(fleet, [first], 0.0, 3)
    assert first.boxes[0].cpus == pytest.approx(4.0)
    first.boxes[0].used = 0.0
    second.boxes[0] = Box("/b", used=2.0)
    second.register(now)
    for _ in range(5):  # the first one's post is not read: it still has everything
        first.report(now)
        second.report(now)
        fleet.decide(0.1, now)
        second.read(now)
        now += 0.1
        assert second.boxes[0].cpus == 0.0
    _rounds(fleet, [first, second], now, 3)
    assert second.boxes[0].cpus > 1.0


def test_a_restarted_controller_goes_on_where_the_former_was() -> None:
    fleet = _fleet()
    agents = [NodeAgent(name, fleet, 0.0) for name in ("a", "b")]
    for number, agent in enumerate(agents):
        agent.boxes[0] = Box("/x", used=1.0 + number, memory_used=20 * MIB)
        agent.register(0.0)
    now = _rounds(fleet, agents, 0.0, 40)
    had = [(agent.boxes[0].cpus, agent.boxes[0].memory) for agent in agents]
    again = NodeFleet([POOL], now, True, PATIENCE)
    for agent in agents:
        agent.fleet = again
        agent.register(now)
        now = _rounds(again, [agent], now, 5)
    for _ in range(40):
        now = _rounds(again, agents, now, 1)
        for agent, (cpus, memory) in zip(agents, had, strict=True):
            assert agent.boxes[0].cpus == pytest.approx(cpus, rel=0.1)
            assert agent.boxes[0].memory == memory


def test_a_broken_line_costs_nobody_anything_and_a_silent_node_is_dropped() -> None:
    fleet = _fleet()
    agents = [NodeAgent(name, fleet, 0.0) for name in ("a", "b")]
    for agent in agents:
        agent.boxes[0] = Box("/x", used=1.5)
        agent.register(0.0)
    now = _rounds(fleet, agents, 0.0, 10)
    had = agents[0].boxes[0].cpus
    agents[0].register(now + 1.0)  # with another number for the same container
    agents[0].boxes = {5: agents[0].boxes[0]}
    now = _rounds(fleet, agents, now + 1.0, 3)
    assert agents[0].boxes[5].cpus == pytest.approx(had, rel=0.15)
    assert len(fleet.controller.slots) == 2
    for _ in range(30):
        now = _rounds(fleet, [agents[1]], now, 1)
    assert [session.name for session in fleet.registry.sessions.values()] == ["b"]
    assert len(fleet.controller.slots) == 1
    with pytest.raises(WireError, match="register"):
        agents[0].report(now)


def test_memory_for_one_node_is_taken_from_another_and_both_are_in_the_journal() -> None:
    grants = list[Grant]()
    fleet = _fleet(notice=grants.append, memory=MemorySettings(every=1e9))
    rich, poor = NodeAgent("rich", fleet, 0.0), NodeAgent("poor", fleet, 0.0)
    for agent in (rich, poor):
        agent.boxes[0] = Box("/x", memory_used=10 * MIB)
        agent.register(0.0)
    now = _rounds(fleet, [rich, poor], 0.0, 2)
    for _ in range(4):
        box = poor.boxes[0]
        box.memory_used = box.memory
        before = box.memory
        poor.send(MemoryRequest(0, box.memory_used), now)
        rich.read(now)  # takes, and confirms at once
        poor.read(now)
        now = _rounds(fleet, [rich, poor], now, 1)
        assert box.memory >= before + 16 * MIB
    assert rich.boxes[0].memory < 160 * MIB
    assert [grant.path for grant in grants] == ["poor:/x"] * 4
    poor.boxes[0].memory_used = rich.boxes[0].memory_used = 400 * MIB
    now = _rounds(fleet, [rich, poor], now, 1)
    for _ in range(20):
        poor.send(MemoryRequest(0, poor.boxes[0].memory), now)
        for _ in range(4):
            now = _rounds(fleet, [rich, poor], now, 1)
    assert isinstance(poor.heard[-2], MemoryGrant | Orders)
    assert MemoryGrant(0, None) in poor.heard
    assert grants[-1].after == grants[-1].before


def test_an_ask_that_nobody_confirms_is_answered_all_the_same() -> None:
    fleet = _fleet(memory=MemorySettings(every=1e9))
    mute, poor = NodeAgent("mute", fleet, 0.0), NodeAgent("poor", fleet, 0.0)
    for agent in (mute, poor):
        agent.boxes[0] = Box("/x", memory_used=10 * MIB)
        agent.register(0.0)
    now = _rounds(fleet, [mute, poor], 0.0, 2)
    assert poor.boxes[0].memory == 160 * MIB
    for _ in range(3):
        poor.boxes[0].memory_used = poor.boxes[0].memory
        poor.send(MemoryRequest(0, poor.boxes[0].memory), now)
        for _ in range(5):
            now = _rounds(fleet, [poor], now, 1)
    assert MemoryGrant(0, None) in poor.heard


@pytest.mark.parametrize(
    ("report", "match"),
    [
        (Report(0.1, np.zeros(1, ROW)), "joined"),
        (Report(0.1, np.zeros(1, ROW), (Join(0, 5, "/x"),)), "pool"),
        (Report(0.1, np.zeros(0, ROW), (Join(0, 0, "/x"),)), "row"),
        (Report(0.1, np.zeros(0, ROW), (), np.array([3], dtype="<u4")), "joined"),
    ],
)
def test_a_report_that_cannot_be_is_refused(report: Report, match: str) -> None:
    agent = NodeAgent("a", _fleet(), 0.0)
    agent.register(0.0)
    with pytest.raises(WireError, match=match):
        agent.send(report, 0.0)


def test_a_slot_is_not_taken_twice() -> None:
    agent = NodeAgent("a", _fleet(), 0.0, {0: Box("/x")})
    agent.register(0.0)
    agent.report(0.0)
    with pytest.raises(WireError, match="slot"):
        agent.send(Report(0.1, np.zeros(1, ROW), (Join(0, 0, "/y"),)), 0.0)


def test_who_talks_without_end_is_refused_and_the_others_are_not() -> None:
    fleet = _fleet()
    loud, other = NodeAgent("loud", fleet, 0.0), NodeAgent("other", fleet, 0.0, {0: Box("/x", used=1.0)})
    loud.register(0.0)
    other.register(0.0)
    for _ in range(100):
        loud.report(0.0)
    with pytest.raises(WireError, match="messages"):
        loud.report(0.0)
    _rounds(fleet, [other], 0.0, 3)
    assert other.boxes[0].cpus > 1.0
