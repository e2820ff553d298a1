"""A lane: turns by effort, functions in control groups, and what is measured of them."""

import errno
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from trimtab.collect import LAWS, Effort
from trimtab.collect.functions.applications import Application, Segment, Surroundings
from trimtab.collect.functions.lane import Function, FunctionLane, RunningFunction, _SizedFunction, running
from trimtab.collect.functions.surroundings import neighbours_on
from trimtab.core import StorageError
from trimtab.kernel import LimitedGroup, read_process

EFFORT = Effort(least=8, seconds=2.0, ceiling=30.0)


def test_both_invocations_and_seconds_are_needed() -> None:
    assert EFFORT.progress(8, 1.0, 1.5) == 0.5
    assert EFFORT.progress(4, 9.0, 9.5) == 0.5
    assert EFFORT.progress(8, 2.0, 3.0) == 1


def test_the_ceiling_ends_what_would_take_too_long() -> None:
    assert EFFORT.progress(2, 20.0, 29.0) < 1
    assert EFFORT.progress(3, 25.0, 31.0) >= 1


@given(st.integers(0, 100), st.floats(0, 100), st.floats(0, 100), st.integers(1, 9), st.floats(0.1, 9))
def test_every_invocation_is_progress(
    count: int, seconds: float, spent: float, more: int, longer: float
) -> None:
    before = EFFORT.progress(count, seconds, spent)
    assert EFFORT.progress(count + more, seconds + longer, spent + longer) > before


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
    assert used <= 1.15 * 0.1 * process.seconds  # less where the machine is busy
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
        pytest.raises(StorageError, match="TMPDIR"),
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


pytestmark = pytest.mark.usefixtures("no_group_is_left")
QUICK = Effort(least=2, seconds=0.2, turn=0.05, ceiling=10.0)


def lane(effort: Effort = QUICK) -> FunctionLane:
    return FunctionLane(tuple(sorted(os.sched_getaffinity(0)))[:2], "", effort)


def application(kind: str, **inputs: int) -> Application:
    return Application("f", (Segment(kind, inputs),))


@pytest.fixture(autouse=True)
def _affinity_and_folders() -> object:
    """A lane takes its CPUs; the tests after this one want theirs back."""
    cpus = os.sched_getaffinity(0)
    before = set(os.listdir(tempfile.gettempdir()))
    yield
    os.sched_setaffinity(0, cpus)
    me = f"-{os.getpid()}-"
    assert not [name for name in set(os.listdir(tempfile.gettempdir())) - before if me in name]


@pytest.mark.parametrize("law", sorted(LAWS))
def test_more_memory_buys_a_busy_function_time(law: str) -> None:
    rows = lane().measure(application("floating-point", operations=100_000), LAWS[law], (1024, 128, 2048))
    assert [row.memory_mb for row in rows] == [1024, 128, 2048]
    assert {(row.environment, row.application, row.status) for row in rows} == {(law, "f", "ok")}
    assert rows[1].mean_s > 1.5 * max(rows[0].mean_s, rows[2].mean_s)
    assert all(row.n >= 2 and row.n * row.mean_s >= 0.2 and row.probe_s > 0 for row in rows)
    assert all(row.min_s <= row.median_s <= row.p95_s <= row.p99_s <= row.max_s for row in rows)
    if law == "lambda":
        assert rows[1].mean_s * rows[1].cpus > 0.8 * (rows[1].cpu_user_s + rows[1].cpu_system_s)
        assert rows[1].throttled_s > 0


def test_sizes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = list[tuple[int, ...]]()
    turn = FunctionLane._turn

    def watched(self: FunctionLane, batch: list[_SizedFunction], *rest: object) -> None:
        turns.append(tuple(function.memory_mb for function in batch))
        turn(self, batch, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FunctionLane, "_turn", watched)
    lane(Effort(least=4, seconds=0.6, turn=0.05)).measure(
        application("sleep", milliseconds=20), LAWS["lambda"], (128, 256, 1024, 2048)
    )
    assert turns[:3] == [(128, 256), (1024,), (2048,)], "one warm-up each, small ones side by side"
    measured = turns[3:]
    half = len(measured) // 2
    assert set(measured[:half]) == set(measured[half:]) == set(turns[:3]), "all the time"
    assert measured.count((2048,)) > measured.count((128, 256)), "short ones where a size allows it"


def test_a_size_too_small_for_the_function_is_told_and_the_others_go_on() -> None:
    rows = lane().measure(application("decompress", size=40_000_000), LAWS["openwhisk"], (32, 2048))
    assert [row.status for row in rows] == ["out-of-memory", "ok"]
    assert (rows[0].n, rows[0].mean_s) == (0, 0)
    assert rows[1].memory_peak_bytes > 40_000_000


def test_what_takes_too_long_at_a_size_is_told() -> None:
    effort = Effort(least=8, seconds=1.0, turn=0.05, ceiling=0.3)
    (row,) = lane(effort).measure(application("sleep", milliseconds=150), LAWS["lambda"], (1024,))
    assert (row.status, row.n) == ("timed-out", 0)
