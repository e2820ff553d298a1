"""Processes that are started together end together."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.kernel import Owner
from trimtab.partition.run.processes import RunFailedError, meeting_folder, run_processes, sweep


def _run(scripts: list[str], folder: Path, timeout: float = 60.0) -> None:
    run_processes(
        len(scripts),
        lambda rank: [sys.executable, "-c", scripts[rank]],
        folder,
        timeout,
        1,
        lambda rank: f"process {rank}",
    )


def _waits(folder: Path, name: str) -> str:
    """A script that writes down its number and waits for long."""
    return f"import os, time; open({str(folder / name)!r}, 'w').write(str(os.getpid())); time.sleep(600)"


def _gone(folder: Path, name: str) -> bool:
    deadline = time.monotonic() + 10.0
    pid = int((folder / name).read_text())
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_all_that_end_well_are_waited_for(tmp_path: Path) -> None:
    done = [tmp_path / "a", tmp_path / "b"]
    _run([f"open({str(path)!r}, 'w')" for path in done], tmp_path)
    assert all(path.exists() for path in done)


def test_the_cause_is_named_and_not_who_lost_its_connection(tmp_path: Path) -> None:
    scripts = [
        "import sys; sys.exit('RuntimeError: Connection closed by peer')",
        "import sys; print('long story', file=sys.stderr); sys.exit('ValueError: no such thing')",
    ]
    with pytest.raises(RunFailedError, match=r"^process 1 .*ValueError: no such thing$"):
        _run(scripts, tmp_path)


def test_when_one_dies_the_others_are_killed(tmp_path: Path) -> None:
    scripts = [_waits(tmp_path, "first"), _when_there(tmp_path / "first", "os.kill(os.getpid(), 9)")]
    with pytest.raises(RunFailedError, match=r"^process 1 .*signal 9"):
        _run(scripts, tmp_path)
    assert _gone(tmp_path, "first")


def test_those_that_take_too_long_are_named_and_killed(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"3 s.*process 0$"):
        _run([_waits(tmp_path, "slow"), "pass"], tmp_path, timeout=3.0)
    assert _gone(tmp_path, "slow")


def test_an_interrupt_ends_all_of_them(tmp_path: Path) -> None:
    def interrupt() -> None:
        deadline = time.monotonic() + 30.0
        pid = tmp_path / "one"
        while not (pid.exists() and pid.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    helper = threading.Thread(target=interrupt)
    helper.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            _run([_waits(tmp_path, "one")], tmp_path)
    finally:
        helper.join()
        signal.signal(signal.SIGINT, before)
    assert _gone(tmp_path, "one")


def _when_there(path: Path, then: str) -> str:
    """A script that waits for a file to be written before it does something."""
    return (
        "import os, time\n"
        f"while not (os.path.exists({str(path)!r}) and os.path.getsize({str(path)!r})):\n"
        "    time.sleep(0.02)\n"
        f"{then}"
    )


def test_a_folder_is_gone_after_its_run_whatever_happens() -> None:
    with pytest.raises(RuntimeError), meeting_folder() as folder:  # noqa: PT012
        (folder / "job").write_text("x")
        raise RuntimeError
    assert not folder.exists()


def test_folders_of_killed_processes_are_swept_and_others_are_not(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    me = Owner.current()
    ended, elsewhere = replace(me, pid=child.pid), replace(me, namespace=me.namespace + 1, pid=child.pid)
    names = (ended.name("run1"), me.name("run2"), elsewhere.name("run3"), "trimtab-other-run4")
    folders = [tmp_path / name for name in names]
    for folder in folders:
        folder.mkdir()
    sweep(tmp_path)
    assert [folder.exists() for folder in folders] == [False, True, True, True]
