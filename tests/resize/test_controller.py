"""The controller: whatever is told and confirmed in whatever order, a cap holds."""

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trimtab.core import NotFoundError
from trimtab.resize import Controller, Pool, Selector, SlotLimits

MIB = 2**20
ANY = (Selector("/any/*"),)
POOLS = (
    Pool("a", 2.0, 256.0 * MIB, ANY),
    Pool("b", 0.5, 64.0 * MIB, ANY, policy="escra"),
)


def _decided(controller: Controller) -> None:
    controller.decide(0.1)
    controller.confirm(controller.takes())
    controller.confirm(controller.gives())


def test_at_first_everyone_has_an_equal_part_and_memory_is_withheld() -> None:
    controller = Controller(POOLS)
    slots = np.array([controller.join(0) for _ in range(4)])
    _decided(controller)
    np.testing.assert_allclose(controller.column("cpus"), 0.5)
    np.testing.assert_allclose(controller.first_memory(slots).values, 0.8 * 64 * MIB)


def test_someone_new_in_a_full_pool_gets_its_part_from_the_others() -> None:
    controller = Controller(POOLS)
    first = controller.join(0)
    _decided(controller)
    controller.observe(np.array([first]), np.array([2.0]), np.array([True]))
    assert controller.column("cpus").tolist() == [2.0]
    controller.join(0)
    _decided(controller)
    np.testing.assert_allclose(controller.column("cpus"), [1.0, 1.0])


def test_what_is_not_confirmed_is_not_given_away() -> None:
    controller = Controller(POOLS)
    slots = np.array([controller.join(0), controller.join(0)])
    _decided(controller)
    controller.observe(slots, np.array([0.0, 1.0]), np.array([False, True]))
    controller.decide(0.1)
    taken = controller.takes()
    assert taken.slots.tolist() == [0]
    assert len(controller.gives()) == 0
    controller.confirm(taken)
    given = controller.gives()
    assert given.slots.tolist() == [1]
    assert given.values[0] + taken.values[0] <= 2.0


def test_in_a_full_pool_headroom_goes_to_who_is_held_back() -> None:
    controller = Controller(POOLS)
    slots = np.array([controller.join(0), controller.join(0)])
    _decided(controller)
    for turn in range(30):  # one has peaks, and headroom above them; the other is held back by its limit
        peaks = 0.9 * (turn % 3 == 0)
        limit = controller.column("cpus")
        controller.observe(slots, np.array([peaks, limit[1]]), np.array([False, True]))
        _decided(controller)
    mean = 0.3
    assert controller.column("cpus")[1] > 2.0 - 2 * mean
    assert controller.column("cpus")[0] > mean
    assert controller.column("cpus").sum() <= 2.0


def test_who_leaves_makes_room_and_a_slot_is_used_again() -> None:
    controller = Controller(POOLS)
    first, second = controller.join(0), controller.join(0)
    _decided(controller)
    controller.leave(np.array([first]))
    assert controller.slots.tolist() == [second]
    assert controller.join(1) == first
    assert controller.column("pool").tolist() == [1, 0]


def test_a_policy_nobody_knows_is_refused() -> None:
    with pytest.raises(
        NotFoundError,
        match=r'"magic".*trimtab, escra, static, vpa, autopilot',
    ):
        Controller([Pool("a", 1.0, 1e9, ANY, policy="magic")])


class AnyOrder(RuleBasedStateMachine):
    """Containers come and go, confirmations come late or never, memory runs out: sums stay within caps."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = Controller(POOLS)
        self.cpus: dict[int, float] = {}  # what the kernel enforces
        self.memory: dict[int, float] = {}
        self.pool: dict[int, int] = {}

    @precondition(lambda self: len(self.pool) < 12)
    @rule(pool=st.integers(0, 1))
    def join(self, pool: int) -> None:
        slot = self.controller.join(pool)
        self.pool[slot], self.cpus[slot], self.memory[slot] = pool, 0.0, 0.0
        self._memory(self.controller.first_memory(np.array([slot])))

    @precondition(lambda self: self.pool)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.pool)))
        self.controller.leave(np.array([slot]))
        for table in (self.pool, self.cpus, self.memory):
            del table[slot]

    @precondition(lambda self: self.pool)
    @rule(data=st.data())
    def period(self, data: st.DataObject) -> None:
        slots = self.controller.slots
        part = st.lists(st.floats(0.0, 1.5), min_size=len(slots), max_size=len(slots))
        flags = st.lists(st.booleans(), min_size=len(slots), max_size=len(slots))
        used = np.array(data.draw(part)) * self.controller.column("cpus")
        self.controller.observe(slots, used, np.array(data.draw(flags)))
        self.controller.observe_memory(
            slots, np.array(data.draw(part)) * self.controller.column("memory") / 1.5
        )
        self.controller.decide(0.1)
        self._cpu(self.controller.takes(), data)
        self._cpu(self.controller.gives(), data)

    @precondition(lambda self: self.pool)
    @rule(data=st.data())
    def run_out(self, data: st.DataObject) -> None:
        slots = np.array([data.draw(st.sampled_from(sorted(self.pool)))])
        _, missing = self.controller.grants(slots)
        self._memory(self.controller.urgent_memory_takes(missing))
        self._memory(self.controller.grants(slots)[0])

    @rule()
    def calm(self) -> None:
        self._memory(self.controller.memory_takes())

    def _cpu(self, limits: SlotLimits, data: st.DataObject) -> None:
        """The kernel takes some of them; of those, some are confirmed."""
        kept = np.array([data.draw(st.booleans()) for _ in range(len(limits))], dtype=bool)
        for slot, value in zip(limits.slots[kept].tolist(), limits.values[kept].tolist(), strict=True):
            self.cpus[slot] = value
        self.controller.confirm(SlotLimits(limits.slots[kept], limits.values[kept]))

    def _memory(self, limits: SlotLimits) -> None:
        for slot, value in zip(limits.slots.tolist(), limits.values.tolist(), strict=True):
            self.memory[slot] = value
        self.controller.confirm_memory(limits)

    @invariant()
    def sums_fit(self) -> None:
        for number, pool in enumerate(POOLS):
            mine = [slot for slot, which in self.pool.items() if which == number]
            assert sum(self.cpus[slot] for slot in mine) <= pool.cpu * (1 + 1e-9)
            assert sum(self.memory[slot] for slot in mine) <= pool.memory * (1 + 1e-9)


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_in_any_order_the_caps_hold = AnyOrder.TestCase
