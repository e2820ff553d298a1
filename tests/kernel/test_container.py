"""Somebody's container: counted and limited in real control groups, and version 2's files as text."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from trimtab.core import TrimtabError
from trimtab.kernel import (
    ContainerGroup,
    GroupBusyError,
    GroupGoneError,
    Hierarchy,
    LimitedGroup,
    NoGroupError,
    mounted,
)

MIB = 2**20
SPIN = "while True: sum(range(10000))"
HOLD = "import time; kept = bytearray(40 << 20); print(flush=True); time.sleep(60)"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _made(stack: ExitStack) -> tuple[LimitedGroup, ContainerGroup]:
    """A group of our own, and the same as a container's."""
    try:
        group = stack.enter_context(LimitedGroup.create())
    except NoGroupError as error:
        pytest.skip(f"needs the right to make control groups: {error}")
    hierarchy = Hierarchy(group.version, group._folders)
    return group, stack.enter_context(ContainerGroup(hierarchy, ""))


def _start(stack: ExitStack, group: LimitedGroup, script: str) -> "subprocess.Popen[bytes]":
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", script],
        preexec_fn=lambda: group.add(os.getpid()),
        stdout=subprocess.PIPE,
    )
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child


def test_a_container_is_counted_and_held_to_its_cpus(stack: ExitStack) -> None:
    group, container = _made(stack)
    assert container.cpu_limit() is None
    container.limit_cpus(0.2)
    assert container.cpu_limit() == pytest.approx(0.2)
    _start(stack, group, SPIN)
    time.sleep(0.3)
    before, start = container.cpu(), time.monotonic()
    time.sleep(1.5)
    after, seconds = container.cpu(), time.monotonic() - start
    assert (after.used - before.used) / seconds == pytest.approx(0.2, rel=0.25)
    assert 0 < after.throttled - before.throttled <= after.periods - before.periods
    container.limit_cpus(None)
    assert container.cpu_limit() is None


def test_a_limit_below_what_is_in_use_is_refused_and_the_old_one_stays(stack: ExitStack) -> None:
    group, container = _made(stack)
    container.limit_memory(100 * MIB)
    child = _start(stack, group, HOLD)
    assert child.stdout is not None
    child.stdout.readline()
    assert container.memory() > 40 * MIB
    with pytest.raises(GroupBusyError, match="its limit stays"):
        container.limit_memory(20 * MIB)
    assert container.memory_limit() == 100 * MIB
    assert child.poll() is None
    container.limit_memory(None)
    assert container.memory_limit() is None


def test_a_container_that_vanishes_between_two_looks_is_said_to_be_gone(stack: ExitStack) -> None:
    group, container = _made(stack)
    group.remove()
    for look in (container.cpu, container.memory, container.cpu_limit, lambda: container.limit_cpus(1.0)):
        with pytest.raises(GroupGoneError, match="is gone"):
            look()


def test_a_container_that_never_was_is_said_to_be_gone_and_no_file_stays_open() -> None:
    hierarchy = mounted()
    if hierarchy is None:
        pytest.skip("needs control groups")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(GroupGoneError, match="/never/was is gone"):
        ContainerGroup(hierarchy, "/never/was")
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_the_cpu_controller_it_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(TrimtabError, match="no 'cpu' controller is mounted here"):
        ContainerGroup(Hierarchy(1, {"cpuacct": tmp_path, "memory": tmp_path}), "")


def test_version_2_has_other_files_for_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "pod1"
    folder.mkdir()
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nnr_periods 7\nnr_throttled 3\n")
    (folder / "cpu.max").write_text("max 50000\n")
    (folder / "memory.current").write_text(f"{30 * MIB}\n")
    (folder / "memory.max").write_text("max\n")
    with ContainerGroup(Hierarchy(2, {"": tmp_path}), "/pod1") as container:
        counted = container.cpu()
        assert (counted.used, counted.periods, counted.throttled) == (2.5, 7, 3)
        assert (container.cpu_limit(), container.memory_limit()) == (None, None)
        container.limit_cpus(0.5)
        assert (folder / "cpu.max").read_text() == "25000 50000"
        with pytest.raises(GroupBusyError):
            container.limit_memory(20 * MIB)
        container.limit_memory(64 * MIB)
        assert container.memory_limit() == 64 * MIB
