"""A container that runs out of memory stands still, gets more, and goes on: for real."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from trimtab.kernel import (
    ContainerGroup,
    Hierarchy,
    LimitedGroup,
    MemoryTraps,
    NoGroupError,
    limit_high,
    untrap,
)

MIB = 2**20
# Takes a megabyte at a time, touches it, and says how many it has.
GROW = """
kept = []
for count in range(1, {most} + 1):
    kept.append(bytes(1 << 20).replace(b"\\0", b"1", 1))
    print(count, flush=True)
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _container(stack: ExitStack, limit: float) -> tuple[LimitedGroup, ContainerGroup]:
    try:
        group = stack.enter_context(LimitedGroup.create())
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    if group.version == 2:
        pytest.skip("this story is version 1's: version 2 slows down before its limit instead")
    group.limit_memory(limit)
    folders = group._folders
    return group, stack.enter_context(ContainerGroup(Hierarchy(group.version, folders), ""))


def _start(stack: ExitStack, group: LimitedGroup, most: int) -> "subprocess.Popen[bytes]":
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", GROW.format(most=most)],
        preexec_fn=lambda: group.add(os.getpid()),
        stdout=subprocess.PIPE,
    )
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child


def test_a_trapped_container_resumes_after_the_grant_and_nobody_is_killed(stack: ExitStack) -> None:
    group, container = _container(stack, 24 * MIB)
    traps = stack.enter_context(MemoryTraps())
    traps.add(container)
    child = _start(stack, group, 60)
    limit, grants = 24 * MIB, 0
    while child.poll() is None:
        for trapped in traps.wait(0.05):
            assert trapped is container
            limit += 16 * MIB
            container.limit_memory(limit)
            grants += 1
    assert child.wait() == 0
    assert 2 <= grants <= 6
    assert group.out_of_memory_kills() == 0
    assert child.stdout is not None
    assert child.stdout.read().split()[-1] == b"60"


def test_without_a_grant_it_stands_still_and_is_killed_when_the_killer_is_back(stack: ExitStack) -> None:
    group, container = _container(stack, 24 * MIB)
    traps = stack.enter_context(MemoryTraps())
    traps.add(container)
    child = _start(stack, group, 60)
    assert traps.wait(60) == [container]
    assert child.poll() is None
    assert group.out_of_memory_kills() == 0
    untrap(container)
    assert child.wait() == -9
    assert group.out_of_memory_kills() >= 1


def test_the_killer_is_given_back_at_the_end_and_no_file_stays_open(stack: ExitStack) -> None:
    _, container = _container(stack, 24 * MIB)
    before = len(os.listdir("/proc/self/fd"))
    with MemoryTraps() as traps:
        traps.add(container)
        assert "oom_kill_disable 1" in container.read_text("memory.oom_control")
    assert "oom_kill_disable 0" in container.read_text("memory.oom_control")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_container_that_vanishes_while_trapped_harms_nobody(stack: ExitStack) -> None:
    group, container = _container(stack, 24 * MIB)
    with MemoryTraps() as traps:
        traps.add(container)
        group.remove()
        traps.wait(0.1)
        traps.remove(container)
        assert traps.wait(0.01) == []


def test_version_2_slows_down_a_little_below_the_limit(tmp_path: Path) -> None:
    texts = {
        "cpu.stat": "usage_usec 1\n",
        "cpu.max": "max 100000\n",
        "memory.current": "1000\n",
        "memory.high": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with ContainerGroup(Hierarchy(2, {"": tmp_path}), "") as container:
        limit_high(container, 100.0 * MIB)
        assert (tmp_path / "memory.high").read_text() == str(97 * MIB)
        limit_high(container, 0.5 * MIB)
        assert (tmp_path / "memory.high").read_text() == "0"
        untrap(container)
        assert (tmp_path / "memory.high").read_text() == "max"
