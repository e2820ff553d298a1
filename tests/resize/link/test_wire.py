"""Messages: what goes in comes out; anything else is refused with one error and changes nothing."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.resize import Pool, Selector
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
    Welcome,
    WireError,
    limits,
)

POOLS = (
    Pool("shop", 2.0, 4e9, (Selector("/shop/*", {"app": "shop"}),)),
    Pool("ä", 1.0, 1e9, (Selector("/b"),)),
)
SLOTS = st.lists(st.integers(0, 1000), unique=True, max_size=5).map(sorted)
CPUS = st.floats(0, 1e6)
BYTES = st.floats(0, 2.0**60)
PATHS = st.text("abc/-.é\\ ", min_size=1, max_size=20).map(lambda text: "/" + text)


def _ends() -> tuple[MessageStream, MessageStream]:
    """An agent's and a controller's end after the greeting."""
    agent, controller = MessageStream(), MessageStream(7)
    controller.unpack(agent.pack(Hello()))
    agent.unpack(controller.pack(Welcome(POOLS, 2.0)))
    return agent, controller


@st.composite
def _limits(draw: st.DrawFn) -> np.ndarray:
    slots = draw(SLOTS)
    return limits(slots, draw(st.lists(BYTES, min_size=len(slots), max_size=len(slots))))


@st.composite
def _reports(draw: st.DrawFn) -> Report:
    slots = draw(SLOTS)
    rows = np.zeros(len(slots), ROW)
    rows["slot"] = slots
    for row in rows:
        row["used"], row["cpus"], row["memory"], row["memory_used"] = (
            draw(each) for each in (CPUS, CPUS, BYTES, BYTES)
        )
        row["throttled"] = draw(st.integers(0, 2**32 - 1))
    joins = tuple(Join(slot, draw(st.integers(0, 9)), draw(PATHS)) for slot in draw(SLOTS))
    return Report(draw(st.floats(0, 1e6)), rows, joins, np.array(draw(SLOTS), dtype="<u4"))


MESSAGES = st.one_of(
    _reports(),
    st.builds(Orders, _limits(), _limits(), _limits(), _limits(), st.booleans()),
    st.builds(MemoryRequest, st.integers(0, 1000), BYTES),
    st.builds(MemoryGrant, st.integers(0, 1000), st.none() | st.floats(1, 2.0**60)),
    st.builds(MemoryConfirmation, _limits()),
)


def _same(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    names = type(one).__dataclass_fields__  # type: ignore[attr-defined]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@given(MESSAGES)
def test_what_is_said_is_heard(message: object) -> None:
    agent, controller = _ends()
    assert _same(controller.unpack(agent.pack(message)), message)  # type: ignore[arg-type]


def test_the_greeting_brings_pools_and_names_the_stream() -> None:
    agent, controller = MessageStream(), MessageStream(7)
    assert controller.unpack(agent.pack(Hello())) == Hello()
    assert agent.unpack(controller.pack(Welcome(POOLS, 2.0))) == Welcome(POOLS, 2.0)
    assert agent.session == 7
    assert (agent.heard, agent.acknowledged, controller.sent) == (1, 1, 1)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        _ends()[1].unpack(data)


@given(MESSAGES, st.data())
def test_a_damaged_message_is_refused_or_still_within_bounds(message: object, data: st.DataObject) -> None:
    agent, controller = _ends()
    packed = bytearray(agent.pack(message))  # type: ignore[arg-type]
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(packed)))
    before = controller.heard
    try:
        heard = controller.unpack(bytes(packed[:cut] if data.draw(st.booleans()) else packed))
    except WireError:
        assert controller.heard == before
        return
    if isinstance(heard, Report):
        assert np.isfinite(heard.rows["used"]).all()
        assert (heard.rows["cpus"] >= 0).all()


def test_what_was_said_before_or_elsewhere_is_refused() -> None:
    agent, controller = _ends()
    first = agent.pack(MemoryRequest(1, 2.0))
    controller.unpack(first)
    with pytest.raises(WireError, match="message 2 "):
        controller.unpack(first)
    stranger, _ = _ends()
    stranger.session = 8
    with pytest.raises(WireError, match="stream"):
        controller.unpack(stranger.pack(MemoryRequest(1, 2.0)))
    with pytest.raises(WireError, match="greeting"):
        controller.unpack(MessageStream().pack(Hello()))
    agent.heard = 99
    with pytest.raises(WireError, match="99"):
        controller.unpack(agent.pack(MemoryRequest(1, 2.0)))


@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf, 1e7])
def test_numbers_that_cannot_be_are_refused(value: float) -> None:
    agent, controller = _ends()
    rows = np.zeros(2, ROW)
    rows["slot"], rows["cpus"] = (0, 1), (0.5, value)
    with pytest.raises(WireError, match="number"):
        controller.unpack(agent.pack(Report(0.1, rows)))


@pytest.mark.parametrize("slots", [(1, 1), (2, 1), (0, 10**6)])
def test_a_container_is_named_once_in_order_and_within_reason(slots: tuple[int, int]) -> None:
    agent, controller = _ends()
    rows = np.zeros(2, ROW)
    rows["slot"] = slots
    with pytest.raises(WireError, match="slots"):
        controller.unpack(agent.pack(Report(0.1, rows)))


@pytest.mark.parametrize("path", ["shop", "/sh\nop", "/" + "a" * 5000, ""])
def test_a_path_that_cannot_be_shown_is_refused(path: str) -> None:
    agent, controller = _ends()
    with pytest.raises(WireError, match="path"):
        controller.unpack(agent.pack(Report(0.1, np.zeros(1, ROW), (Join(0, 0, path),))))


def test_another_version_is_told_apart_from_nonsense() -> None:
    agent, controller = _ends()
    packed = bytearray(agent.pack(MemoryRequest(1, 2.0)))
    packed[4] = 9
    with pytest.raises(WireError, match="version 9"):
        controller.unpack(bytes(packed))
