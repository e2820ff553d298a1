"""Somebody's container: counted and limited in real control groups, and version 2's files as text."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import until

from trimtab.kernel import (
    ContainerGroup,
    CpuRefusedError,
    GroupBusyError,
    GroupGoneError,
    GroupRefusedError,
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
    until(lambda: container.cpu().throttled > 1)
    before, start = container.cpu(), time.monotonic()
    until(lambda: container.cpu().throttled > before.throttled + 8)
    after, seconds = container.cpu(), time.monotonic() - start
    assert 0 < (after.used - before.used) / seconds < 0.25
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
    with pytest.raises(GroupBusyError, match="limit"):
        container.limit_memory(20 * MIB)
    assert container.memory_limit() == 100 * MIB
    assert child.poll() is None
    container.limit_memory(None)
    assert container.memory_limit() is None


def test_a_container_that_vanishes_between_two_looks_is_said_to_be_gone(stack: ExitStack) -> None:
    group, container = _made(stack)
    group.remove()
    for look in (container.cpu, container.memory, container.cpu_limit, lambda: container.limit_cpus(1.0)):
        with pytest.raises(GroupGoneError):
            look()


def test_a_container_that_never_was_is_said_to_be_gone_and_no_file_stays_open() -> None:
    hierarchy = mounted()
    if hierarchy is None:
        pytest.skip("needs control groups")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(GroupGoneError, match="/never/was"):
        ContainerGroup(hierarchy, "/never/was")
    assert len(os.listdir("/proc/self/fd")) == before


def _files(folder: Path, **files: object) -> Path:
    """A folder with files; "__" in a name is a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")
    return folder


def _v1(tmp_path: Path, **cpu: object) -> Hierarchy:
    """Version 1 with these files of the cpu controller, which is not mounted if there are none."""
    folders = {
        "cpuacct": _files(tmp_path / "cpuacct", cpuacct__usage=3 * 10**9),
        "memory": _files(
            tmp_path / "memory", memory__usage_in_bytes=20 * MIB, memory__limit_in_bytes=64 * MIB
        ),
    }
    return Hierarchy(1, folders | ({"cpu": _files(tmp_path / "cpu", **cpu)} if cpu else {}))


@pytest.mark.parametrize("files", [{}, {"cpu__shares": 1024}], ids=["not mounted", "no bandwidth"])
def test_without_limits_of_cpu_in_the_kernel_the_rest_still_works(
    tmp_path: Path, files: dict[str, object]
) -> None:
    with ContainerGroup(_v1(tmp_path, **files), "") as container:
        assert container.cpu() == (3.0, 0, 0)
        assert container.cpu_limit() is None
        with pytest.raises(GroupRefusedError, match=r"cpu\.cfs_quota_us"):
            container.limit_cpus(1.0)
        assert container.cpu_limit_stands()
        container.limit_memory(32 * MIB)
        assert container.memory_limit() == 32 * MIB


def test_in_version_2_either_controller_may_be_off(tmp_path: Path) -> None:
    _files(tmp_path / "cpu", cpu__stat="usage_usec 5\nuser_usec 5", cpu__max="20000 100000")
    _files(tmp_path / "memory", cpu__stat="usage_usec 5", memory__current=MIB, memory__max="max")
    hierarchy = Hierarchy(2, {"": tmp_path})
    with ContainerGroup(hierarchy, "/cpu") as container:
        assert container.cpu() == (5e-6, 0, 0)
        assert (container.cpu_limit(), container.memory(), container.memory_limit()) == (0.2, 0, None)
        with pytest.raises(GroupRefusedError, match="memory"):
            container.limit_memory(MIB)
    with ContainerGroup(hierarchy, "/memory") as container:
        with pytest.raises(GroupRefusedError, match=r"cpu\.max"):
            container.limit_cpus(1.0)
        container.limit_memory(2 * MIB)
        assert container.memory_limit() == 2 * MIB


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from trimtab.core import TrimtabError
from trimtab.kernel import ContainerGroup, Hierarchy
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
folders = dict(pair.split("=") for pair in sys.argv[1:])
with ContainerGroup(Hierarchy(1, {name: Path(folder) for name, folder in folders.items()}), "") as container:
    print(container.cpu().throttled, container.cpu_limit())
    for limit in (lambda: container.limit_cpus(0.5), lambda: container.limit_memory(2**30)):
        try:
            limit()
        except TrimtabError as error:
            print(type(error).__name__, error)
"""


def test_without_permission_it_can_be_looked_at_but_not_limited(stack: ExitStack) -> None:
    group, container = _made(stack)
    if os.getuid() != 0 or group.version == 2:
        pytest.skip("needs root, to give it up, and version 1")
    container.limit_cpus(0.25)
    told = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, *(f"{name}={folder}" for name, folder in group.folders.items())],
        capture_output=True,
        text=True,
    )
    assert told.stderr == ""
    refused = (
        "GroupForbiddenError control groups cannot be written: Permission denied; "
        "that takes root, and control groups mounted for writing"
    )
    assert told.stdout.splitlines() == ["0 0.25", refused, refused]
    assert container.cpu_limit() == 0.25


def test_a_limit_above_that_of_the_group_above_is_refused(stack: ExitStack) -> None:
    group, container = _made(stack)
    if group.version == 2:
        pytest.skip("version 2 allows it, and holds to the smaller one")
    inner = {name: folder / "inner" for name, folder in group.folders.items()}
    for folder in inner.values():
        folder.mkdir()
        stack.callback(folder.rmdir)
    below = stack.enter_context(ContainerGroup(Hierarchy(1, inner), ""))
    container.limit_cpus(0.5)
    below.limit_cpus(0.4)
    with pytest.raises(CpuRefusedError):
        below.limit_cpus(0.6)
    with pytest.raises(CpuRefusedError):
        container.limit_cpus(0.3)
    assert (container.cpu_limit(), below.cpu_limit()) == (0.5, 0.4)


def test_what_others_set_is_noticed(stack: ExitStack) -> None:
    group, container = _made(stack)
    group.limit_cpus(0.7)
    assert container.cpu_limit_stands()  # nothing has been set here
    assert container.memory_limit_stands()
    container.limit_cpus(0.2)
    container.limit_memory(100 * MIB + 1)
    assert container.cpu_limit_stands()
    assert container.memory_limit_stands()
    group.limit_cpus(0.7, period=0.05)
    group.limit_memory(80 * MIB)
    assert not container.cpu_limit_stands()
    assert not container.memory_limit_stands()
    assert container.cpu_limit() == pytest.approx(0.7)
    container.limit_cpus(0.2)
    assert container.cpu_limit_stands()
    assert container.cpu_limit() == pytest.approx(0.2)


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
        assert (folder / "cpu.max").read_text() == "25000 50000\n"
        assert container.cpu_limit() == 0.5
        with pytest.raises(GroupBusyError):
            container.limit_memory(20 * MIB)
        container.limit_memory(64 * MIB)
        assert container.memory_limit() == 64 * MIB
