"""Neighbours that are busy when woken, cost nothing at rest, and are gone at the end."""

import time

import pytest

from trimtab.collect.functions.neighbours import neighbours_on
from trimtab.kernel import read_process


def used(before: float, now: float | None) -> float:
    return (now or 0.0) - before


@pytest.mark.usefixtures("no_group_is_left")
def test_neighbours_work_when_woken_and_use_nothing_at_rest() -> None:
    with neighbours_on((0, 1)) as neighbours:
        group = neighbours.group
        before = group.cpu_seconds() or 0.0
        time.sleep(0.2)
        assert used(before, group.cpu_seconds()) < 0.01, "asleep at first"
        neighbours.wake()
        time.sleep(0.4)
        neighbours.rest()
        assert used(before, group.cpu_seconds()) > 0.05
        time.sleep(0.05)
        before = group.cpu_seconds() or 0.0
        time.sleep(0.2)
        assert used(before, group.cpu_seconds()) < 0.01, "asleep again"
    assert all(read_process(pid) is None for pid in neighbours.pids)


@pytest.mark.usefixtures("no_group_is_left")
def test_neighbours_end_also_after_a_failure() -> None:
    pids = list[int]()

    def fail() -> None:
        with neighbours_on((0,)) as neighbours:
            pids.extend(neighbours.pids)
            neighbours.wake()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [read_process(pid) for pid in pids] == [None]
