"""Real control groups, and version 2's files as a folder of text."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.kernel import Group, Hierarchy, NoGroupError, Owner, find_hierarchy, sweep_groups


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
        deadline = time.monotonic() + 10
        while (group.cpu_seconds() or 0) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.05)
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
    deadline = time.monotonic() + 5
    while len(group.pids()) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(group.pids()) == 3
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
    with pytest.raises(NoGroupError, match="no control group can be made in"):
        Group.create(Hierarchy(2, {"": tmp_path / "missing"}))
