"""The dead-man switch: when limits are restored, and by whom."""

import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import until

from trimtab.kernel import (
    ContainerGroup,
    DeadManSwitch,
    Hierarchy,
    LimitedGroup,
    LimitJournal,
    NoGroupError,
    SafeLimits,
    read_process,
)
from trimtab.kernel.deadman import listen
from trimtab.kernel.safe_limits import restore_limits


def _restored(sent: bytes, patience: float = 60.0) -> list[bool]:
    """Whether the agent had ended, for each time that limits are restored after these bytes; with a short
    patience the input ends after the first."""
    restored = list[bool]()
    has_restored = threading.Event()

    def restore(agent_has_ended: bool) -> None:
        restored.append(agent_has_ended)
        has_restored.set()

    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        thread = threading.Thread(target=listen, args=(source, patience, restore))
        thread.start()
        os.write(writing, sent)
        if patience < 1.0:
            assert has_restored.wait(60.0)
        os.close(writing)
        thread.join()
    return restored


def test_limits_are_restored_when_the_input_ends() -> None:
    assert _restored(b"..") == [True]


def test_nothing_is_restored_after_the_end_byte() -> None:
    assert _restored(b"..!") == []


def test_silence_restores_once_and_the_end_once_more() -> None:
    assert _restored(b".", patience=0.05) == [False, True]


@pytest.fixture
def journal(tmp_path: Path) -> LimitJournal:
    hierarchy = Hierarchy(1, dict.fromkeys(("cpu", "cpuacct", "memory"), tmp_path))
    journal = LimitJournal(tmp_path / "limits", hierarchy)
    journal.write({"/a": SafeLimits("/a", 0.5, 1e8)})
    return journal


def test_an_agent_that_was_silent_learns_that_limits_were_restored(journal: LimitJournal) -> None:
    switch = DeadManSwitch(journal.path, patience=0.2)
    while switch.beat():
        time.sleep(0.3)  # longer than its patience
    assert switch.alive
    assert journal.path.exists()  # the agent goes on
    switch.end()
    assert not switch.alive


def test_a_suspended_switch_is_woken_by_a_heartbeat(journal: LimitJournal) -> None:
    switch = DeadManSwitch(journal.path)
    try:
        os.kill(switch.pid, signal.SIGSTOP)
        until(lambda: _state(switch.pid) == "T")
        switch.beat()
        until(lambda: _state(switch.pid) != "T")
    finally:
        switch.end()


def _state(pid: int) -> str:
    assert read_process(pid) is not None
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_pod_and_its_containers_are_restored_in_any_order() -> None:
    """In version 1 a container's limit must not be above its pod's, when either is changed."""
    with ExitStack() as stack:
        try:
            root = stack.enter_context(LimitedGroup.create())
        except NoGroupError as error:
            pytest.skip(f"needs the right to make control groups: {error}")
        hierarchy = Hierarchy(root.version, root.folders)
        groups = {}
        for path in ("/wide", "/wide/a", "/narrow", "/narrow/a"):
            for folder in root.folders.values():
                (folder / path[1:]).mkdir()
                stack.callback((folder / path[1:]).rmdir)
            groups[path] = stack.enter_context(ContainerGroup(hierarchy, path))
        now = {"/wide": 2.0, "/wide/a": 1.5, "/narrow": 0.1, "/narrow/a": 0.05}
        safe = {"/wide": 0.5, "/wide/a": 0.4, "/narrow": 1.0, "/narrow/a": 0.8}
        for path, cpus in now.items():
            groups[path].limit_cpus(cpus)
        restore_limits([SafeLimits(path, cpus, None) for path, cpus in safe.items()], hierarchy)
        assert {path: group.cpu_limit() for path, group in groups.items()} == pytest.approx(safe)
