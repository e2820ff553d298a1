"""Forked processes, neighbours, the local server and the folders of functions."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from waiting import until

from trimtab.collect.functions.surroundings import (
    child,
    local_server,
    neighbours_on,
    own_folder,
)
from trimtab.core import StorageError
from trimtab.kernel import LimitedGroup, Owner, read_process
from trimtab.observe import sweep_folders

ORPHAN = """
import os, signal, time
from trimtab.collect.functions.surroundings import child
with child(lambda: time.sleep(60)) as pid:
    print(pid, flush=True)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_ends_with_its_context() -> None:
    with child(lambda: time.sleep(60)) as pid:
        assert read_process(pid) is not None
    assert read_process(pid) is None


def test_a_child_that_fails_ends_quietly_and_does_not_return_here() -> None:
    me = os.getpid()
    with child(lambda: 1 / 0) as pid:
        while (found := read_process(pid)) is not None and not found.zombie:
            time.sleep(0.01)
        assert os.getpid() == me


def test_a_child_dies_with_a_killed_parent() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while (found := read_process(int(done.stdout))) is not None and not found.zombie:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_signal_to_end_is_not_blocked_afterwards() -> None:
    with child(lambda: time.sleep(60)) as pid:
        time.sleep(0.1)
        os.kill(pid, signal.SIGTERM)
        while (found := read_process(pid)) is not None and not found.zombie:
            time.sleep(0.01)
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def used(before: float, now: float | None) -> float:
    return (now or 0.0) - before


def idle(group: LimitedGroup) -> bool:
    before = group.cpu_seconds() or 0.0
    time.sleep(0.2)
    return used(before, group.cpu_seconds()) < 0.01


@pytest.mark.usefixtures("no_group_is_left")
def test_neighbours_work_when_woken_and_use_nothing_at_rest() -> None:
    with neighbours_on((0, 1)) as neighbours:
        group = neighbours.group
        before = group.cpu_seconds() or 0.0
        time.sleep(0.2)
        assert used(before, group.cpu_seconds()) < 0.01, "asleep at first"
        neighbours.wake()
        until(lambda: used(before, group.cpu_seconds()) > 0.1)
        neighbours.rest()
        until(lambda: idle(group))
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


@pytest.mark.usefixtures("no_group_is_left")
def test_the_server_waits_answers_and_ends() -> None:
    with local_server(frozenset({0})) as address:
        start = time.monotonic()
        with urllib.request.urlopen(f"{address}/stream?chunks=3&size=100&milliseconds=20") as answer:
            assert len(answer.read()) == 300
        assert time.monotonic() - start >= 0.06
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/call?size=1&milliseconds=0", timeout=1)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_lives_as_long_as_its_context() -> None:
    with own_folder() as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()


def test_folders_of_the_dead_are_swept_and_no_others(temporary: Path) -> None:
    dead = temporary / Owner(Owner.current().namespace, 4_000_000, 1).name("a")
    other = temporary / "trimtab-something"
    for folder in (dead, other):
        folder.mkdir()
    with own_folder() as mine:
        sweep_folders()
        assert (dead.exists(), other.exists(), mine.exists()) == (False, True, True)


def test_no_folder_is_said_in_one_sentence(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "gone"))
    with pytest.raises(StorageError, match="TMPDIR"):
        own_folder().__enter__()
