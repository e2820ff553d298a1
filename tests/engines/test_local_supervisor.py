"""Workers that begin together, or not at all."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.core import TrimtabError
from trimtab.engines.local.supervisor import WorkerProcesses
from trimtab.kernel import LimitedGroup


def test_workers_run_nothing_before_they_are_let_go(
    new_group: Callable[..., LimitedGroup], tmp_path: Path
) -> None:
    """Whoever made them dies first, as by kill -9."""
    group = new_group()
    maker = os.fork()
    if maker == 0:
        WorkerProcesses(["touch", str(tmp_path / "ran")], [dict(os.environ)] * 2, group, os.pipe())
        os._exit(0)
    os.waitpid(maker, 0)
    deadline = time.monotonic() + 10
    while group.pids():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not (tmp_path / "ran").exists()


def test_a_command_that_cannot_be_run_is_told_once_for_all(new_group: Callable[..., LimitedGroup]) -> None:
    gang = WorkerProcesses(["no-such-command"], [{"PATH": "/nowhere"}] * 3, new_group(), os.pipe())
    with pytest.raises(TrimtabError, match='"no-such-command"'):
        gang.go()
    for pid in gang.pids:
        os.waitpid(pid, 0)
