"""The process that holds a worker's command on a node, by itself: nothing of Ray is needed for it."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trimtab.engines.ray import holder

HEEDLESS = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
print(os.getpid(), flush=True)
while True:
    time.sleep(0.1)
"""
STUBBORN = f"trap '' TERM; {shlex.quote(sys.executable)} -S -c {shlex.quote(HEEDLESS)} & wait"
ESCAPED = "setsid sh -c 'echo $$; exec sleep 60' & read -r line < /dev/null; sleep 0.3; exit 4"


class Held:
    """A command in the hands of a holder."""

    def __init__(self, *command: str, folder: str = "/", **environment: str) -> None:
        pipe = subprocess.PIPE
        program = [sys.executable, "-S", holder.__file__]
        self.holder = subprocess.Popen(program, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe)
        told = {"command": command, "environment": {**os.environ, **environment}, "folder": folder}
        self.tell(json.dumps(told))

    def tell(self, line: str) -> None:
        assert self.holder.stdin is not None
        self.holder.stdin.write(line.encode() + b"\n")

    def leave(self) -> None:
        assert self.holder.stdin is not None
        self.holder.stdin.close()

    def line(self) -> str:
        """The next line the command has written."""
        assert self.holder.stderr is not None
        return self.holder.stderr.readline().decode().strip()

    def answer(self) -> str:
        assert self.holder.stdout is not None
        return self.holder.stdout.readline().decode().strip()

    def close(self) -> None:
        for stream in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self.holder.wait()


@pytest.fixture
def held() -> Iterator[Callable[..., Held]]:
    made = list[Held]()

    def hold(*command: str, **more: str) -> Held:
        made.append(Held(*command, **more))
        return made[-1]

    yield hold
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", "0"), ("exit 7", "7"), ("kill -9 $$", "137"), (ESCAPED, "4")]
)
def test_it_answers_with_the_status_a_shell_would_give(
    held: Callable[..., Held], script: str, status: str
) -> None:
    assert held("sh", "-c", script).answer() == status


def test_what_the_command_left_running_ends_with_it(held: Callable[..., Held]) -> None:
    one = held("sh", "-c", ESCAPED)
    left = int(one.line())
    assert one.answer() == "4"
    assert _ended(left)


def test_the_command_has_its_folder_and_variables(held: Callable[..., Held], tmp_path: Path) -> None:
    assert held("sh", "-c", "echo $PWD $WORD", folder=str(tmp_path), WORD="it's").line() == f"{tmp_path} it's"
    elsewhere = held("sh", "-c", "echo $PWD", folder="/not/on/this/node").line()
    assert elsewhere == str(Path.home())


def test_a_signal_goes_to_the_command(held: Callable[..., Held]) -> None:
    one = held("sh", "-c", "trap 'echo heard; exit 5' USR1; echo ready; while true; do sleep 0.05; done")
    assert one.line() == "ready"
    one.tell("USR1")
    assert (one.line(), one.answer()) == ("heard", "5")


def test_who_ignores_the_end_is_killed_with_all_it_started(held: Callable[..., Held]) -> None:
    one = held("sh", "-c", STUBBORN)
    child = int(one.line())
    one.tell("TERM")
    assert one.line() == "asked"
    assert not _ended(child, 0)
    one.tell("KILL")
    assert one.answer() == "137"
    assert _ended(child)


def test_a_command_that_kills_its_holder_ends_with_all_it_started(held: Callable[..., Held]) -> None:
    one = held("sh", "-c", "setsid sh -c 'echo $$; exec sleep 60' & sleep 0.3; kill -9 $PPID; sleep 60")
    child = int(one.line())
    assert one.answer() == ""
    assert _ended(child)


def test_where_nobody_leads_any_more_everything_ends(held: Callable[..., Held]) -> None:
    one = held("sh", "-c", STUBBORN)
    child = int(one.line())
    one.leave()
    assert one.answer() == "137"
    assert _ended(child)


@pytest.mark.parametrize(
    ("command", "reason"), [("/not/there", "no such file"), ("/etc/passwd", "permission denied")]
)
def test_a_command_that_cannot_be_run_is_answered_with_the_reason(
    held: Callable[..., Held], command: str, reason: str
) -> None:
    answer = held(command).answer()
    assert f'"{command}"' in answer
    assert reason in answer


def _ended(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
