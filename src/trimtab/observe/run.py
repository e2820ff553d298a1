"""A profiled command: started in a control group where possible, ended with all its processes."""

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
"""Seconds between SIGINT, SIGTERM and SIGKILL to a command."""


class Interrupts:
    """While entered, `received` holds the first signal that came. Outside the main thread it catches none."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            # A signal that is ignored (nohup, a shell's background) stays ignored.
            caught = [number for number in _CAUGHT if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in caught}
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
    """A running command with all its processes. Use as a context: leaving it ends them."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], threads: int | None = None
    ) -> None:
        self.started = time.monotonic()
        self.ended_by: int | None = None
        self.group: Group | None = None
        with contextlib.suppress(NoGroupError):
            self.group = Group.create()
        self._folder = variables.get(FOLDER_VARIABLE, "")
        self._known: dict[tuple[int, int], Process] = {}
        try:
            self._child = _start(command, {**variables, **_thread_variables(threads)}, self.group, threads)
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
        """Containment of its processes: cgroup-v1, cgroup-v2 or process-tree."""
        return self.group.method if self.group is not None else "process-tree"

    def status(self) -> int | None:
        """The command's exit status as a shell would give it (128 + signal), None while it runs."""
        code = self._child.poll()
        return 128 - code if code is not None and code < 0 else code

    def members(self) -> list[Process]:
        """The living processes of the run."""
        if self.group is not None:
            members = [p for pid in self.group.pids() if (p := read_process(pid)) and not p.zombie]
        else:
            members = tree(self.pid, self._known.values())
        self._known.update({(p.pid, p.started): p for p in members})
        return members

    def stop(self, grace: float = GRACE) -> None:
        """End it: interrupt, after `grace` seconds terminate, after as many again kill."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self.status() is None:
                self.ended_by = number
            _signal(self.members(), number)
            deadline = time.monotonic() + grace
            while number != signal.SIGKILL and time.monotonic() < deadline:
                if self.status() is not None and not self.members():
                    return
                time.sleep(0.02)
        self._kill()
        self._child.wait()

    def _kill(self) -> None:
        if self.group is not None:
            self.group.kill()
            return
        _signal(self.members(), signal.SIGKILL)
        # Processes that left the tree between two looks at it still carry the run's mark.
        marked = (p for p in processes() if environment(p.pid).get(FOLDER_VARIABLE) == self._folder)
        _signal([process for process in marked if self._folder and not process.zombie], signal.SIGKILL)

    def _remove_group(self) -> None:
        if self.group is not None:
            self.group.remove()
            self.group = None


def sweep_runs() -> None:
    """End processes that a killed Trimtab has left running, in groups or marked by their environment."""
    sweep_groups()
    for process in processes():
        folder = environment(process.pid).get(FOLDER_VARIABLE)
        owner = Owner.of(os.path.basename(folder)) if folder else None
        if owner is not None and owner.is_gone():
            _signal([process], signal.SIGKILL)


def _signal(members: Sequence[Process], number: int) -> None:
    for member in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member.pid, number)


def _thread_variables(threads: int | None) -> dict[str, str]:
    return {} if threads is None else dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def _start(
    command: Sequence[str], variables: Mapping[str, str], group: Group | None, threads: int | None
) -> "subprocess.Popen[bytes]":
    parent = os.getpid()
    cpus = sorted(os.sched_getaffinity(0))[:threads] if threads is not None else None

    def prepare() -> None:
        """In the child, before the command: only calls that are safe between fork and exec."""
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # In the background of a shell this process may ignore SIGINT; the command should not.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
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
        problem = "is not executable; make it so or run it by its interpreter"
        raise CommandError(f'"{command[0]}" {problem}', 126) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f'"{command[0]}" cannot be run: {reason}', 126) from None
