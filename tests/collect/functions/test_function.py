"""A function's process: it rests, takes turns, and every end of it is told apart."""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.collect.functions.function import Function, RunningFunction, running
from trimtab.collect.functions.neighbours import neighbours_on
from trimtab.collect.functions.segments import Surroundings
from trimtab.core import StorageError
from trimtab.kernel import LimitedGroup, read_process

pytestmark = pytest.mark.usefixtures("no_group_is_left")


def function(invoke: Callable[[], object], group: LimitedGroup, tmp_path: Path) -> Function:
    return Function(invoke, Surroundings(tmp_path, ""), group, frozenset(os.sched_getaffinity(0)), 0.0)


def turn(process: RunningFunction, seconds: float, patience: float = 20.0) -> None:
    process.begin_turn(seconds)
    process.end_turn(patience)


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_turn_lasts_so_long_and_at_least_one_invocation(group: LimitedGroup, tmp_path: Path) -> None:
    with running(function(lambda: time.sleep(0.02), group, tmp_path)) as process:
        turn(process, 0.0)
        assert process.invocations == 1
        turn(process, 0.1)
        assert 2 <= len(process.turns[1].durations) <= 6
        assert sum(process.turns[1].durations) >= 0.1
        assert process.usual >= 0.02
        assert process.seconds <= process.spent
        assert process.turns[1].usage.voluntary_switches >= 2
    assert read_process(process.pid) is None


def test_who_waits_for_a_turn_uses_nothing(group: LimitedGroup, tmp_path: Path) -> None:
    with running(function(lambda: spin(0.02), group, tmp_path)) as process:
        turn(process, 0.1)
        time.sleep(0.05)
        before = group.cpu_seconds() or 0.0
        time.sleep(0.3)
        assert (group.cpu_seconds() or 0.0) - before < 0.002
        assert process.turns[0].usage.cpu_user_s + process.turns[0].usage.cpu_system_s >= 0.02


def test_what_is_between_turns_is_not_counted(group: LimitedGroup, tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write() -> None:
        path.write_bytes(b"x" * 1000)

    with running(function(write, group, tmp_path)) as process:
        for _ in range(3):
            turn(process, 0.0)
    assert all(each.usage.bytes_written == pytest.approx(1000, abs=300) for each in process.turns)


def test_a_quota_is_felt_from_the_first_invocation_of_a_turn(group: LimitedGroup, tmp_path: Path) -> None:
    group.limit_cpus(0.1, 0.02)
    limited = Function(
        lambda: sum(range(150_000)), Surroundings(tmp_path, ""), group, frozenset({0}), head_start=0.004
    )
    with running(limited) as process:
        for _ in range(10):
            turn(process, 0.1)
    used = sum(each.usage.cpu_user_s + each.usage.cpu_system_s for each in process.turns)
    assert process.seconds * 0.1 / used == pytest.approx(1, rel=0.15)
    assert sum(each.usage.throttled_periods for each in process.turns) > 5


def test_too_much_memory_is_told(group: LimitedGroup, tmp_path: Path) -> None:
    group.limit_memory(32 * 2**20)
    with running(function(lambda: b"x" * 100_000_000, group, tmp_path)) as process:
        turn(process, 0.0)
        assert process.ended == "out-of-memory"


def test_who_takes_too_long_is_ended(group: LimitedGroup, tmp_path: Path) -> None:
    with running(function(lambda: time.sleep(60), group, tmp_path)) as process:
        turn(process, 0.0, patience=0.2)
        assert process.ended == "timed-out"


def test_a_failure_and_a_death_are_told(group: LimitedGroup, tmp_path: Path) -> None:
    for invoke in (lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        with running(function(invoke, group, tmp_path)) as process:
            turn(process, 0.0)
            assert process.ended == "failed"
            turn(process, 0.0)
            assert process.ended == "failed", "and again, for who asks again"


def test_a_full_disk_is_no_property_of_the_function(group: LimitedGroup, tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        running(function(full, group, tmp_path)) as process,
        pytest.raises(StorageError, match="disk of the temporary folder is full"),
    ):
        turn(process, 0.0)


def test_neighbours_are_awake_during_turns_only(group: LimitedGroup, tmp_path: Path) -> None:
    with neighbours_on((0, 1)) as neighbours:
        crowded = Function(
            lambda: time.sleep(0.2), Surroundings(tmp_path, ""), group, frozenset({0, 1}), 0.0, neighbours
        )
        with running(crowded) as process:
            turn(process, 0.0)
            used = neighbours.group.cpu_seconds() or 0.0
            assert used > 0.02
            time.sleep(0.3)
            assert (neighbours.group.cpu_seconds() or 0.0) - used < 0.02
