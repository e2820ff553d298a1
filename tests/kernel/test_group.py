"""Control groups of our own: accounted for, limited, killed and removed; and both versions' files as text."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import until

from trimtab.kernel import Group, Hierarchy, LimitedGroup, NoGroupError, Owner, find_hierarchy, sweep_groups
from trimtab.kernel.hierarchy import passing_down


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        made = Group.create()
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    yield made
    made.remove()


def start_in(group: Group, *command: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, preexec_fn=lambda: group.add(os.getpid()))


def leftovers() -> list[Path]:
    hierarchy = find_hierarchy()
    folders = hierarchy.folders.values() if hierarchy else ()
    me = Owner.current().name("")
    return [path for folder in folders for path in folder.glob(f"{me}*")]


def test_a_group_accounts_for_what_runs_in_it(group: Group) -> None:
    script = "data = bytearray(50_000_000)\nwhile True: sum(range(10000))"
    child = start_in(group, sys.executable, "-c", script)
    try:
        until(lambda: (group.cpu_seconds() or 0) >= 0.3)
        assert child.pid in group.pids()
        assert (group.cpu_seconds() or 0) >= 0.3
        memory = group.memory()
        assert memory is None or memory > 50_000_000
        peak = group.memory_peak()
        assert peak is None or peak > 50_000_000
    finally:
        group.kill()
        child.wait()


def test_killing_a_group_reaches_grandchildren_of_other_sessions(group: Group) -> None:
    child = start_in(group, "sh", "-c", "setsid sleep 60 & setsid sleep 60 & wait")
    until(lambda: len(group.pids()) == 3)
    group.kill()
    child.wait()
    assert group.pids() == []


def test_removing_a_group_twice_is_fine_and_leaves_nothing(group: Group) -> None:
    child = start_in(group, "sleep", "60")
    group.remove()
    group.remove()
    assert child.wait() == -9
    assert leftovers() == []


def test_a_sweep_takes_groups_of_dead_owners_and_no_others(group: Group) -> None:
    hierarchy = find_hierarchy()
    assert hierarchy is not None
    dead = Owner(Owner.current().namespace, 4_000_000, 1).name("dead")
    foreign = Owner(1, 4_000_000, 1).name("foreign")
    for name in (dead, foreign):
        for controller, parent in hierarchy.folders.items():
            if controller != "cpu":
                (parent / name).mkdir()
    try:
        orphan = subprocess.Popen(["sleep", "60"])
        stale = Group(hierarchy.version, {c: f / dead for c, f in hierarchy.folders.items() if c != "cpu"})
        stale.add(orphan.pid)
        assert sweep_groups() == [dead]
        assert orphan.wait() == -9
        assert all((folder / foreign).exists() for c, folder in hierarchy.folders.items() if c != "cpu")
        assert leftovers() != []
    finally:
        for controller, parent in hierarchy.folders.items():
            if controller != "cpu":
                (parent / foreign).rmdir()


def test_a_process_that_ends_takes_its_own_groups_too(group: Group) -> None:
    child = start_in(group, "sleep", "60")
    assert sweep_groups() == []
    assert sweep_groups(own=True) == [next(iter(group.folders.values())).name]
    assert child.wait() == -9
    assert leftovers() == []


def test_version_2_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 300\n")
    (tmp_path / "memory.peak").write_text("2000\n")
    (tmp_path / "io.stat").write_text("8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=5 wbytes=0 rios=1\n")
    (tmp_path / "cgroup.procs").write_text("12\n7\n0\n")
    group = Group(2, {"": tmp_path})
    assert group.cpu_seconds() == 2.5
    assert group.memory() == 700
    assert group.memory_peak() == 2000
    assert group.io() == (15, 20)
    assert group.pids() == [7, 12]
    assert group.method == "cgroup-v2"


def test_what_version_2_does_not_account_for_is_unknown_not_zero(tmp_path: Path) -> None:
    group = Group(2, {"": tmp_path})
    assert (group.cpu_seconds(), group.memory(), group.io(), group.pids()) == (None, None, None, [])


def test_a_place_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoGroupError, match=re.escape(str(tmp_path))):
        Group.create(Hierarchy(2, {"": tmp_path / "missing"}))


SPIN = "while True: sum(range(10000))"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def new_group(stack: ExitStack) -> LimitedGroup:
    try:
        return stack.enter_context(LimitedGroup.create())
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")


def start_python(stack: ExitStack, group: LimitedGroup, script: str) -> "subprocess.Popen[bytes]":
    """Python in the group, on one CPU, ended with the test."""

    def enter() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        group.add(os.getpid())

    child = subprocess.Popen(
        [sys.executable, "-S", "-c", script], preexec_fn=enter, stderr=subprocess.DEVNULL
    )
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child


def test_a_quota_really_limits_the_cpu_and_throttling_is_counted(stack: ExitStack) -> None:
    group = new_group(stack)
    group.limit_cpus(0.2, 0.02)
    start_python(stack, group, SPIN)
    until(lambda: group.throttled()[0] > 2)
    (periods, seconds), before, start = group.throttled(), group.cpu_seconds() or 0.0, time.monotonic()
    until(lambda: group.throttled()[0] > periods + 25 and group.throttled()[1] > seconds + 0.3)
    used = (group.cpu_seconds() or 0.0) - before
    assert 0 < used / (time.monotonic() - start) < 0.25


def test_a_lifted_quota_limits_no_more(stack: ExitStack) -> None:
    group = new_group(stack)
    group.limit_cpus(0.02, 0.02)
    group.limit_cpus(None)
    start_python(stack, group, SPIN)
    until(lambda: (group.cpu_seconds() or 0.0) > 0.3)
    assert group.throttled()[0] == 0
    assert group.cpu_limit() is None


def test_weights_divide_a_busy_cpu(stack: ExitStack) -> None:
    heavy, light = new_group(stack), new_group(stack)
    heavy.weigh_cpu(30_000)
    light.weigh_cpu(10_000)
    for group in (heavy, light):
        start_python(stack, group, SPIN)
    until(lambda: (light.cpu_seconds() or 0.0) > 0.1)
    before = [group.cpu_seconds() or 0.0 for group in (heavy, light)]
    until(lambda: (light.cpu_seconds() or 0.0) > before[1] + 0.4)
    more, less = ((group.cpu_seconds() or 0.0) - b for group, b in zip((heavy, light), before, strict=True))
    assert more / less == pytest.approx(3, rel=0.3)


def test_too_much_memory_kills_and_is_counted(stack: ExitStack) -> None:
    group = new_group(stack)
    group.limit_memory(48 * 2**20)
    assert group.out_of_memory_kills() == 0
    child = start_python(stack, group, "data = b'x' * 200_000_000")
    assert child.wait() == -9
    assert group.out_of_memory_kills() == 1
    assert (group.memory_peak() or 0) <= 49 * 2**20


def test_version_2_files(tmp_path: Path) -> None:
    group = LimitedGroup(2, {"": tmp_path})
    group.limit_cpus(0.25)
    assert (tmp_path / "cpu.max").read_text() == "25000 100000"
    group.limit_cpus(0.0001, 0.02)
    assert (tmp_path / "cpu.max").read_text() == "1000 20000", "the least the kernel takes"
    group.limit_cpus(None, 0.05)
    assert (tmp_path / "cpu.max").read_text() == "max 50000"
    for shares, weight in ((1024, 100), (0.1, 1), (10**9, 10_000)):
        group.weigh_cpu(shares)
        assert (tmp_path / "cpu.weight").read_text() == str(weight)
    (tmp_path / "memory.swap.max").write_text("max")
    group.limit_memory(1e6)
    assert (tmp_path / "memory.max").read_text() == "1000000"
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 250000\n")
    (tmp_path / "memory.events").write_text("low 0\nmax 12\noom 2\noom_kill 1\n")
    assert group.throttled() == (3, 0.25)
    assert group.out_of_memory_kills() == 1


def test_version_1_files(tmp_path: Path) -> None:
    group = LimitedGroup(1, {"cpu": tmp_path, "memory": tmp_path})
    group.limit_cpus(0.5, 0.02)
    assert (tmp_path / "cpu.cfs_period_us").read_text() == "20000"
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == "10000"
    group.weigh_cpu(1)
    assert (tmp_path / "cpu.shares").read_text() == "2", "the least the kernel takes"
    group.limit_memory(1e6)
    assert (tmp_path / "memory.limit_in_bytes").read_text() == "1000000"
    assert not (tmp_path / "memory.memsw.limit_in_bytes").exists(), "where swap is not accounted for"
    (tmp_path / "cpu.stat").write_text("nr_periods 9\nnr_throttled 3\nthrottled_time 250000000\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert group.throttled() == (3, 0.25)
    assert group.out_of_memory_kills() == 1


def test_the_nearest_ancestor_that_passes_both_controllers_down_is_the_parent(tmp_path: Path) -> None:
    inner = tmp_path / "slice" / "service"
    inner.mkdir(parents=True)
    for folder, passed in (
        (tmp_path, "cpu memory"),
        (tmp_path / "slice", "cpu io memory"),
        (inner, "memory"),
    ):
        (folder / "cgroup.controllers").write_text("cpu io memory")
        (folder / "cgroup.subtree_control").write_text(passed)
    assert passing_down(Hierarchy(2, {"": inner})) == Hierarchy(2, {"": tmp_path / "slice"})


def test_where_nobody_passes_limits_down_it_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("")
    (tmp_path / "cgroup.subtree_control").write_text("")
    with pytest.raises(NoGroupError, match="cpu and memory"):
        LimitedGroup.create(Hierarchy(2, {"": tmp_path}))
    with pytest.raises(NoGroupError, match="cpu and memory"):
        LimitedGroup.create(Hierarchy(1, {"memory": tmp_path, "cpuacct": tmp_path}))


def test_a_limit_that_cannot_be_set_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoGroupError, match=r"cpu\.weight"):
        LimitedGroup(2, {"": tmp_path / "gone"}).weigh_cpu(100)


def test_a_sweep_takes_limited_groups_of_dead_owners(stack: ExitStack) -> None:
    living = new_group(stack)
    hierarchy = find_hierarchy()
    assert hierarchy is not None
    parent = passing_down(hierarchy)
    assert parent is not None
    dead = Owner(Owner.current().namespace, 4_000_001, 1).name("dead")
    for folder in parent.folders.values():
        (folder / dead).mkdir()
    assert dead in sweep_groups()
    assert not any((folder / dead).exists() for folder in parent.folders.values())
    assert living.cpu_seconds() is not None


def test_a_limit_of_memory_can_be_raised_and_lowered_again(new_group: Callable[..., LimitedGroup]) -> None:
    group = new_group()
    for mib in (64, 512, 128, 1024):
        group.limit_memory(mib * 2**20)
        files = [f for folder in group.folders.values() for f in folder.glob("memory.*")]
        limits = [
            f
            for f in files
            if f.name in ("memory.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        ]
        assert {int(f.read_text()) for f in limits} == {mib * 2**20}
