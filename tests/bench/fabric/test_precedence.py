"""A pause is noted, of the time that was asked about; what measures gets a group of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trimtab_bench.fabric.variants import Precedence, busy_cores
from trimtab_bench.processes import process

from trimtab.kernel import LimitedGroup, NoGroupError, processes, read_process


def watcher() -> int:
    """The process that notes pauses."""
    mine = [each.pid for each in processes() if each.parent == os.getpid()]
    (pid,) = [pid for pid in mine if b"pauses_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid


def test_a_pause_is_noted_in_the_time_it_was() -> None:
    with Precedence() as precedence:
        begin = time.monotonic()
        os.kill(watcher(), signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(watcher(), signal.SIGCONT)
        give_up = time.monotonic() + 10
        while precedence.longest_pause(begin, time.monotonic()) < 0.15 and time.monotonic() < give_up:
            time.sleep(0.01)
        assert precedence.longest_pause(begin, time.monotonic()) > 0.15
        assert precedence.longest_pause(begin - 2.0, begin - 1.0) < 0.15
        assert precedence.longest_pause(time.monotonic() + 10.0, time.monotonic() + 11.0) == 0.0


def test_who_has_precedence_is_in_a_group_that_is_gone_afterwards(new_group: object) -> None:
    new_group()  # type: ignore[operator]
    with subprocess.Popen(["sleep", "60"]) as child, Precedence() as precedence:
        precedence.give(child.pid)
        group = precedence._group
        assert group is not None
        assert set(group.pids()) == {child.pid, watcher()}
    assert child.poll() is not None, "it ended with its group"
    assert not any(folder.exists() for folder in group.folders.values())


def test_it_works_without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NoGroupError("no control groups are mounted on this machine")

    monkeypatch.setattr(LimitedGroup, "create", refuse)
    with Precedence() as precedence:
        precedence.give(os.getpid())
        assert precedence.longest_pause(0.0, 1.0) == 0.0


def test_the_load_keeps_cores_busy_and_ends_with_its_context() -> None:
    own = {each.pid for each in processes() if each.parent == os.getpid()}
    with busy_cores():
        made = [each for each in processes() if each.parent == os.getpid() and each.pid not in own]
        assert len(made) == 2 * len(os.sched_getaffinity(0))
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            now = [read_process(each.pid) for each in made]
            if all(each is not None and each.cpu > 0 for each in now):
                break
            time.sleep(0.05)
        assert all(each is not None and each.cpu > 0 for each in now)
    assert all(read_process(each.pid) is None for each in made)


def test_what_runs_beside_does_not_outlive_a_kill() -> None:
    code = (
        "import sys, time; from trimtab_bench.processes import process\n"
        "with process(['sleep', '1000']) as child: print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        pid = int(bench.stdout.readline())
        bench.kill()
    give_up = time.monotonic() + 10
    while (left := read_process(pid)) is not None and not left.zombie and time.monotonic() < give_up:
        time.sleep(0.01)
    assert left is None or left.zombie


def test_a_companion_ends_when_its_context_fails() -> None:
    started = list[int]()

    def failing() -> None:
        with process(["sleep", "1000"]) as child:
            started.append(child.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert read_process(started[0]) is None
