"""The plane becomes what it should be, whatever happens to messages, to the plane and on the way to it."""

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as some

from trimtab.fabric.reconcile.planes import Changes, PlaneError, Table
from trimtab.fabric.reconcile.reconciler import Heard, Reconciler

MACS = [bytes([2, 0, 0, 0, 0, number]) for number in range(4)]
HOSTS = [bytes([10, 255, 0, number]) for number in range(1, 4)]


@dataclass
class ScriptedView:
    """A control plane whose messages get lost, doubled and late at will."""

    table: dict[bytes, bytes] = field(default_factory=dict)
    dumps: int = 0

    def __post_init__(self) -> None:
        self._messages = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._next = Heard()

    def say(self, what: Heard) -> None:
        self._next = what
        os.eventfd_write(self._messages, 1)

    def entries(self) -> Table:
        self.dumps += 1
        return dict(self.table)

    def heard(self) -> Heard:
        if not select.select([self._messages], [], [], 0)[0]:
            return Heard()
        os.eventfd_read(self._messages)
        return self._next

    def fileno(self) -> int:
        return self._messages

    def close(self) -> None:
        os.close(self._messages)


@dataclass
class Plane:
    """A plane in memory, which others change and which can refuse."""

    name = "memory"
    devices = frozenset[str]()
    table: dict[bytes, bytes] = field(default_factory=dict)
    broken: bool = False
    parts_missing: int = 0
    trusted: float = 0.0

    def prepare(self) -> int:
        missing, self.parts_missing = self.parts_missing, 0
        return missing

    def entries(self) -> Table:
        return dict(self.table)

    def apply(self, changes: Changes) -> None:
        for number, (mac, host) in enumerate(changes.put.items()):
            if self.broken and number:
                break  # the first got through
            self.table[mac] = host
        if self.broken:
            raise PlaneError("the plane refuses")
        for mac in changes.forget:
            self.table.pop(mac, None)

    def trust(self, seconds: float) -> None:
        self.trusted = seconds

    def remove(self) -> None:
        self.table.clear()

    def close(self) -> None:
        pass


@contextmanager
def reconciling(period: float = 60.0) -> Iterator[tuple[ScriptedView, Plane, Reconciler]]:
    view, plane = ScriptedView(), Plane()
    reconciler = Reconciler(view, plane, period)
    try:
        yield view, plane, reconciler
    finally:
        reconciler.close()


steps = some.lists(
    some.one_of(
        some.tuples(some.just("learn"), some.sampled_from(MACS), some.sampled_from(HOSTS)),
        some.tuples(some.just("lose"), some.sampled_from(MACS), some.none()),
        some.tuples(some.just("meddle"), some.sampled_from(MACS), some.sampled_from(HOSTS)),
        some.tuples(some.just("break"), some.none(), some.none()),
        some.tuples(some.just("mend"), some.none(), some.none()),
        some.tuples(some.just("message"), some.none(), some.none()),
    ),
    max_size=20,
)


@settings(deadline=None, max_examples=40)
@given(steps)
def test_after_any_history_one_period_puts_everything_right(history: list[tuple[str, bytes, bytes]]) -> None:
    with reconciling() as (view, plane, reconciler):
        for what, mac, host in history:
            if what == "learn":
                view.table[mac] = host
            elif what == "lose":
                view.table.pop(mac, None)
            elif what == "meddle":
                plane.table[mac] = host
            elif what in ("break", "mend"):
                plane.broken = what == "break"
            else:
                view.say(Heard(entries=True))
                reconciler.step(0)
        plane.broken = False
        reconciler.settle()
        assert plane.table == view.table


histories = some.lists(
    some.tuples(some.sampled_from(MACS), some.sampled_from(HOSTS), some.integers(0, 2)),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=40)
@given(histories)
def test_a_message_lost_doubled_or_late_makes_no_difference_to_the_last_one(
    changes: list[tuple[bytes, bytes, int]],
) -> None:
    with reconciling() as (view, plane, reconciler):
        reconciler.step(0)
        for mac, host, copies in changes:
            view.table[mac] = host
            for _ in range(copies):
                view.say(Heard(entries=True))
                reconciler.step(0)
        view.say(Heard(lost=1))  # all that is left of the last ones is that something was dropped
        reconciler.step(0)
        assert plane.table == view.table


def test_a_burst_of_messages_costs_one_dump() -> None:
    with reconciling() as (view, _, reconciler):
        reconciler.step(0)
        before = view.dumps
        for _ in range(100):
            view.say(Heard(entries=True))
        reconciler.step(0)
        assert view.dumps == before + 1


def test_only_what_differs_is_changed_and_counted() -> None:
    with reconciling() as (view, plane, reconciler):
        view.table = {MACS[0]: HOSTS[0], MACS[1]: HOSTS[1]}
        reconciler.settle()
        del view.table[MACS[0]]
        view.table[MACS[2]] = HOSTS[2]
        reconciler.follow()
        assert (reconciler.counts.changes, reconciler.counts.repairs) == (4, 0)
        plane.table[MACS[1]] = HOSTS[2]
        plane.parts_missing = 1
        reconciler.settle()
        assert plane.table == view.table
        assert reconciler.counts.repairs == 2


def test_word_of_a_device_brings_its_parts_back_at_once() -> None:
    with reconciling() as (view, plane, reconciler):
        reconciler.step(0)
        plane.parts_missing = 1
        view.say(Heard(devices=True))
        reconciler.step(0)
        assert plane.parts_missing == 0


def test_a_plane_that_refuses_is_tried_again_and_not_trusted_meanwhile() -> None:
    with reconciling(period=0.01) as (view, plane, reconciler):
        view.table = dict.fromkeys(MACS, HOSTS[0])
        plane.broken = True
        reconciler.step()
        assert (reconciler.problem, reconciler.counts.failures) == ("the plane refuses", 1)
        assert plane.trusted == 0
        plane.broken = False
        reconciler.step()
        assert plane.table == view.table
        assert reconciler.problem is None
        assert plane.trusted >= 5


@pytest.mark.timeout(10)
def test_it_stops_while_it_waits() -> None:
    with reconciling() as (_, plane, reconciler):
        thread = threading.Thread(target=reconciler.run)
        thread.start()
        deadline = time.monotonic() + 5
        while not plane.trusted and time.monotonic() < deadline:
            time.sleep(0.001)
        reconciler.stop()
        thread.join(5)
        assert not thread.is_alive()
