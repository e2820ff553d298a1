"""The supervisor process of one run: starts the workers in their control group and records how they ended.

It outlives the Trimtab that launched the run, so that a restarted one still learns the exit status. Processes
that the workers leave behind end with them. It reads `{"folder": …, "command": […], "environments": […],
"lock": …}` from its standard input, where no other user can read it, and answers `{"refused": …}`: a
sentence, or null once the workers run. Its standard error is the run's log. It holds the file descriptor
`lock`, which excludes other launches, until it has recorded which processes it started.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from trimtab.core import StorageError, TrimtabError
from trimtab.engines.run_folder import RunFolder
from trimtab.kernel import Group, LimitedGroup, read_process


@dataclass(frozen=True, slots=True)
class WorkerDevices:
    """Accelerators of one worker on its node, and the share of each."""

    node: str
    devices: tuple[int, ...] = ()
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class RunGroup:
    """A run's control group, and the accelerators of each worker, by rank."""

    FILE: ClassVar[str] = "ground"
    version: int
    folders: Mapping[str, str]
    given: tuple[WorkerDevices, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """The workers' processes by rank; the one beside them by pid and start (clock ticks since boot)."""

    time: float
    pids: tuple[int, ...]
    keeper: int
    keeper_started: int


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: the exit status as a shell gives it (128 + signal), and out-of-memory kills."""

    time: float
    status: int
    kills: int


def group_of(run: RunFolder) -> LimitedGroup:
    """Its control group, which may be gone."""
    ground = run.read(RunGroup)
    if ground is None:
        return LimitedGroup(2, {})
    return LimitedGroup(ground.version, {name: Path(folder) for name, folder in ground.folders.items()})


def is_kept(run: RunFolder) -> bool:
    """Whether the process is there that will write down how it ends."""
    start = run.read(Start)
    keeper = read_process(start.keeper) if start else None
    return bool(start and keeper and keeper.started == start.keeper_started and not keeper.zombie)


def is_lost(run: RunFolder) -> bool:
    """Neither it nor the process beside it is there, though it had begun."""
    return run.read(Start) is not None and not is_kept(run) and not group_of(run).pids()


GRACE = 5.0
"""Seconds between asking the others to end, because one worker failed, and killing them."""

# What Python or the process beside the run ignores, and a command should not.
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


class WorkerProcesses:
    """The processes of one run, by rank. Their output goes where this process's standard error goes."""

    def __init__(
        self, command: Sequence[str], environments: Sequence[Mapping[str, str]], group: Group
    ) -> None:
        self._command = list(command)
        self._group = group
        self._waits_at, self._gate = os.pipe()
        self._faults, self._complains_to = os.pipe()
        self.pids = tuple(self._fork(environment) for environment in environments)
        os.close(self._waits_at)
        os.close(self._complains_to)

    def go(self) -> None:
        """Let them run the command; raises with a sentence where it cannot be run."""
        os.write(self._gate, b"." * len(self.pids))
        os.close(self._gate)
        with os.fdopen(self._faults, encoding="utf-8", errors="replace") as faults:
            fault = faults.readline().strip()  # nothing comes once the last of them runs the command
        if fault:
            raise TrimtabError(fault)

    def wait(self, on_purpose: Callable[[], bool]) -> int:
        """The status when all have ended; of the first that failed, whereupon the others are ended.

        They are not where their end is `on_purpose`: whoever wants it gives them the time they need.
        """
        left, status = set(self.pids), 0
        while left and not (status and not on_purpose()):
            pid, raw = os.wait()
            left.discard(pid)
            status = status or _shell_status(raw)
        if left:
            self._group.signal(signal.SIGTERM)
            _reap(left, GRACE)
        return status

    def _fork(self, environment: Mapping[str, str]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.close(self._gate)
            self._become_worker()
            if os.read(self._waits_at, 1):
                os.execvpe(self._command[0], self._command, dict(environment))
        except BaseException as error:
            os.write(self._complains_to, f"{_why(self._command[0], error)}\n".encode())
        finally:
            os._exit(127)

    def _become_worker(self) -> None:
        os.setsid()
        self._group.add(os.getpid())
        os.dup2(os.open(os.devnull, os.O_RDONLY), _INPUT)
        os.dup2(_ERRORS, _OUTPUT)
        for number in _HEARD:
            signal.signal(number, signal.SIG_DFL)


def _reap(left: set[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            left.discard(os.waitpid(-1, os.WNOHANG)[0])
        time.sleep(0.01)


def _shell_status(raw: int) -> int:
    status = os.waitstatus_to_exitcode(raw)
    return 128 - status if status < 0 else status


def _why(program: str, error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f'there is no command "{program}"; check its name and your PATH'
    if isinstance(error, PermissionError):
        return f'"{program}" is not executable; make it so or name its interpreter'
    why = getattr(error, "strerror", None) or str(error)
    return f'"{program}" cannot be run: {why.lower()}'


_UNHEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CANNOT_RUN = 127  # as a shell says it


def keep() -> None:
    """The whole life of the process."""
    message = json.loads(sys.stdin.readline() or "null")
    if message is None:  # whoever launched it died in the middle
        return
    run = RunFolder(Path(message["folder"]))
    group = group_of(run)
    os.set_inheritable(message["lock"], False)
    for number in _UNHEARD:
        signal.signal(number, signal.SIG_IGN)
    try:
        gang = WorkerProcesses(
            message["command"], [{**os.environ, **more} for more in message["environments"]], group
        )
        me = read_process(os.getpid())
        run.keep(Start(time.time(), gang.pids, os.getpid(), me.started if me else 0))
        gang.go()
    except TrimtabError as error:
        group.remove()
        with contextlib.suppress(StorageError):
            run.keep(End(time.time(), _CANNOT_RUN, 0))
        _answer(str(error))
        return
    os.close(message["lock"])
    _answer(None)
    status = gang.wait(on_purpose=lambda: run.stopping)
    kills = group.out_of_memory_kills()
    group.remove()
    run.keep(End(time.time(), status, kills))


def _answer(refused: str | None) -> None:
    with contextlib.suppress(OSError):  # nobody may be there any more
        os.write(sys.stdout.fileno(), json.dumps({"refused": refused}).encode() + b"\n")
    with contextlib.suppress(OSError):
        os.close(sys.stdout.fileno())
