"""A command under watch: started in a group of its own where possible, ended with all it started."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from trimtab.core import TrimtabError
from trimtab.kernel import (
    Group,
    NoGroupError,
    Owner,
    Process,
    die_with_parent,
    environment,
    processes,
    read_process,
    sweep_groups,
    tree,
)
from trimtab.observe.listening import FOLDER_VARIABLE

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE = 5.0
"""Seconds between asking a command to end and asking less politely."""


class Interrupts:
    """While entered, `received` holds the first signal that came. Outside the main thread it catches none."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            # A signal that is ignored (nohup, a shell's background) stays ignored.
            heard = [number for number in _CAUGHT if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number


class CommandError(TrimtabError):
    """The command cannot be started; exit statuses are the shell's: 127 not found, 126 not executable."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class CommandRun:
    """One running command with everything it started. Use as a context: leaving it leaves nothing behind."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self.started = time.monotonic()
        self.ended_by: int | None = None
        self.group = _group_or_none()
        self._folder = variables.get(FOLDER_VARIABLE, "")
        self._known: dict[tuple[int, int], Process] = {}
        try:
            self._child = _start(command, variables, self.group)
        except BaseException:
            self._remove_group()
            raise
        if self.group is not None and self._child.pid not in self.group.pids() and self.status() is None:
            self._remove_group()

    def __enter__(self) -> "CommandRun":
        return self

    def __exit__(self, *exception: object) -> None:
        self._kill()
        self._child.wait()
        self._remove_group()

    @property
    def pid(self) -> int:
        """The command's own process."""
        return self._child.pid

    @property
    def method(self) -> str:
        """How its processes are recognised: cgroup-v1, cgroup-v2 or process-tree."""
        return self.group.method if self.group is not None else "process-tree"

    def status(self) -> int | None:
        """The command's exit status as a shell would give it (128 + signal), None while it runs."""
        code = self._child.poll()
        return 128 - code if code is not None and code < 0 else code

    def members(self) -> list[Process]:
        """The living processes of the run."""
        if self.group is not None:
            found = [p for pid in self.group.pids() if (p := read_process(pid)) and not p.zombie]
        else:
            found = tree(self.pid, self._known.values())
        self._known.update({(p.pid, p.started): p for p in found})
        return found

    def stop(self, grace: float = GRACE) -> None:
        """End it: interrupt, after `grace` seconds terminate, after as many again kill."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._end_with(number)
            if self._all_gone_within(grace):
                return
        self._end_with(signal.SIGKILL)
        self._kill()
        self._child.wait()

    def _end_with(self, number: int) -> None:
        if self.status() is None:
            self.ended_by = number
        self._signal(number)

    def _signal(self, number: int) -> None:
        for member in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, number)

    def _all_gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.status() is None or self.members():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _kill(self) -> None:
        if self.group is not None:
            self.group.kill()
        else:
            self._signal(signal.SIGKILL)
            _kill_marked(self._folder)

    def _remove_group(self) -> None:
        if self.group is not None:
            self.group.remove()
            self.group = None


def sweep_runs() -> None:
    """End what a Trimtab that was killed has left running, in groups or marked by its environment."""
    sweep_groups()
    for found in processes():
        folder = environment(found.pid).get(FOLDER_VARIABLE)
        owner = Owner.of(os.path.basename(folder)) if folder else None
        if owner is not None and owner.is_gone():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(found.pid, signal.SIGKILL)


def _kill_marked(folder: str) -> None:
    """Kill what still carries the run's mark: processes that left the tree between two looks at it."""
    for found in processes():
        if folder and not found.zombie and environment(found.pid).get(FOLDER_VARIABLE) == folder:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(found.pid, signal.SIGKILL)


def _group_or_none() -> Group | None:
    try:
        return Group.create()
    except NoGroupError:
        return None


def _start(
    command: Sequence[str], variables: Mapping[str, str], group: Group | None
) -> "subprocess.Popen[bytes]":
    parent = os.getpid()

    def prepare() -> None:
        """In the child, before the command: only calls that are safe between fork and exec."""
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # Started in the background of a shell we may ignore SIGINT; the command should hear it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if group is not None:
            with contextlib.suppress(OSError):
                group.add(os.getpid())

    try:
        return subprocess.Popen(
            list(command),
            env={**os.environ, **variables},
            # Not in the terminal's foreground group any more, so reading from it would stop the command.
            stdin=subprocess.DEVNULL if sys.stdin is not None and sys.stdin.isatty() else None,
            process_group=0,
            preexec_fn=prepare,
        )
    except FileNotFoundError:
        raise CommandError(f'there is no command "{command[0]}"; check its name and your PATH', 127) from None
    except PermissionError:
        raise CommandError(
            f'"{command[0]}" is not executable; make it so or run it by its interpreter', 126
        ) from None
    except OSError as error:
        raise CommandError(
            f'"{command[0]}" cannot be run: {(error.strerror or str(error)).lower()}', 126
        ) from None
