"""The supervisor processes of a run, which start the workers in their control group and record their end.

They outlive the Trimtab that launched the run, so that a restarted one still learns the exit status. There
are two, so that the death of one loses nothing. The keeper starts the workers and waits for them. The guard
is its parent and a subreaper: when the keeper is killed, the kernel makes the guard the workers' parent, and
the guard goes on as the keeper. A keeper without a guard starts a new one, as its child. That one cannot
become the workers' parent: when its keeper is killed, it ends the run at once. Exit statuses are recorded
before the kernel forgets them, so no worker that has ended is started again.

Supervisors are forked from one process per engine (`serve`), which has these modules loaded. It gets a
request as four descriptors: the message, the pipe for the answer, the run's log, and the lock of launches.
Messages never are on a disk or a command line, because they may hold secrets. `booted` in a message is the
time at which the machine was booted: recorded times follow from it, because the wall clock may be set.
"""

import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from trimtab.core import StorageError, TrimtabError, one_line
from trimtab.engines.run_folder import LogLimit, RunFolder
from trimtab.kernel import (
    Group,
    LimitedGroup,
    adopt_orphans,
    boot_id,
    read_process,
    seconds_since_boot,
)


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
    DURABLE: ClassVar[bool] = False  # nothing runs any more once the machine has lost power
    version: int
    folders: Mapping[str, str]
    given: tuple[WorkerDevices, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Processes of the workers by rank, and the supervisors by pid and start (clock ticks since `boot`)."""

    DURABLE: ClassVar[bool] = False
    time: float
    pids: tuple[int, ...]
    keeper: int
    keeper_started: int
    guard: int = 0
    guard_started: int = 0
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Exits:
    """Pids and exit statuses of the workers that have ended, in this order."""

    statuses: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The exit status as a shell gives it (128 + signal), and the number of out-of-memory kills.

    `reason` says why the status is not the workers' own.
    """

    time: float
    status: int
    kills: int
    reason: str = ""


KILLED = 137
"""The exit status of a process that was killed, as a shell gives it."""

UNSUPERVISED = "its supervisors were killed, and it was ended with them"


def group_of(run: RunFolder) -> LimitedGroup:
    """The control group of a run, which may no longer exist."""
    group = run.read_once(RunGroup) or RunGroup(2, {}, ())
    return LimitedGroup(group.version, {name: Path(folder) for name, folder in group.folders.items()})


def is_supervised(run: RunFolder) -> bool:
    """Whether a supervisor, which will record its end, is running."""
    start = run.read(Start)
    return start is not None and (
        _is_alive(start.keeper, start.keeper_started) or _is_alive(start.guard, start.guard_started)
    )


def is_abandoned(run: RunFolder) -> bool:
    """Whether it had started and has no supervisor; read its `End` after this."""
    return run.read(Start) is not None and not is_supervised(run)


def end_abandoned(run: RunFolder, now: float) -> bool:
    """End what is left of a run without supervisors, and record that; False while processes resist."""
    group = group_of(run)
    group.kill()
    if group.pids():
        return False
    kills = group.out_of_memory_kills()
    group.remove()
    start = run.read(Start)
    if start is not None and start.boot == boot_id():  # else the machine was restarted: the run is lost
        run.keep(End(now, KILLED, kills, UNSUPERVISED))
    return True


def _is_alive(pid: int, started: int) -> bool:
    process = read_process(pid)
    return bool(process and process.started == started and not process.zombie)


def _started(pid: int) -> int:
    process = read_process(pid)
    return process.started if process else 0


GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL to the other workers when one has failed."""

# Signals that Python or the supervisor ignores, and a command should not.
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


class WorkerProcesses:
    """New processes of a run, by rank. Their output goes where this process's standard error goes.

    They wait at `gate`, the reading and the writing end of a pipe, until `go`.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        group: Group,
        gate: tuple[int, int],
    ) -> None:
        self._command = list(command)
        self._group = group
        self._gate_reader, self._gate = gate
        self._faults, self._fault_writer = os.pipe()
        self.pids = tuple(self._fork(environment) for environment in environments)
        os.close(self._gate_reader)
        os.close(self._fault_writer)

    def go(self) -> None:
        """Let the workers run the command; raises if it cannot be run."""
        open_gate(self._gate, len(self.pids))
        with os.fdopen(self._faults, encoding="utf-8", errors="replace") as faults:
            fault = faults.readline().strip()  # the pipe closes when the last worker runs the command
        if fault:
            raise TrimtabError(fault)

    def _fork(self, environment: Mapping[str, str]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.close(self._gate)
            os.setsid()
            self._group.add(os.getpid())
            os.dup2(os.open(os.devnull, os.O_RDONLY), _INPUT)
            os.dup2(_ERRORS, _OUTPUT)
            for number in _DEFAULT_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            if os.read(self._gate_reader, 1):
                os.execvpe(self._command[0], self._command, dict(environment))
        except BaseException as error:
            os.write(self._fault_writer, f"{_why(self._command[0], error)}\n".encode())
        finally:
            os._exit(127)


def open_gate(gate: int, count: int) -> None:
    """Let so many processes pass that wait at the gate; those that have passed notice nothing."""
    with contextlib.suppress(BrokenPipeError):
        os.write(gate, b"." * count)
    os.close(gate)


def _why(program: str, error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f'the command "{program}" does not exist; check its name and your PATH'
    if isinstance(error, PermissionError):
        return f'"{program}" is not executable; make it executable, or name its interpreter'
    why = getattr(error, "strerror", None) or str(error)
    return f'"{program}" cannot be run: {why.lower()}'


class RunKeeper:
    """Waits for the workers of a run, which are children of this process, and records their end."""

    def __init__(self, run: RunFolder, start: Start, log: LogLimit, booted: float) -> None:
        self._run, self._group, self._log, self._booted = run, group_of(run), log, booted
        self._exits = run.read(Exits) or Exits()
        self._running = set(start.pids) - {pid for pid, _ in self._exits.statuses}
        self._guard = start.guard
        try:
            self._guard_end = os.pidfd_open(start.guard)
        except ProcessLookupError:
            self._renew_guard()
        self._woken, wakes = os.pipe()
        for end in (self._woken, wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def keep(self) -> None:
        """Wait for the end of all, or of the first that fails; the others get SIGTERM, then SIGKILL.

        A failure while the run is stopped on purpose ends nothing: then the engine does.
        """
        self._collect()
        while self._running and not (self._status() and not self._run.stopping):
            self._look(self._log.apply())
        if self._running:
            self._group.signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE
            while self._running and (left := deadline - time.monotonic()) > 0:
                self._look(left)
        kills = self._group.out_of_memory_kills()
        self._group.remove()
        self._log.apply()
        record(self._run, End(self._booted + seconds_since_boot(), self._status(), kills))
        if self._guard != os.getppid():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._guard_end, signal.SIGKILL)
        _forget_children()

    def _status(self) -> int:
        return next((status for _, status in self._exits.statuses if status), 0)

    def _look(self, seconds: float) -> None:
        """Wait for the end of a worker or of the guard, at most so long."""
        ready = select.select([self._woken, self._guard_end], [], [], seconds)[0]
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
            self._collect()
        if self._guard_end in ready:
            os.close(self._guard_end)
            self._renew_guard()

    def _renew_guard(self) -> None:
        self._guard = fork_guard(self._run, self._booted)
        self._guard_end = os.pidfd_open(self._guard)

    def _collect(self) -> None:
        """Record the exit statuses of workers that have ended, then let the kernel forget them."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:  # nobody is left whose status can be learned
                self._add(dict.fromkeys(self._running, KILLED))
                return
            if ended is None:
                return
            if ended.si_pid in self._running:
                by_signal = ended.si_code != os.CLD_EXITED
                self._add({ended.si_pid: 128 + ended.si_status if by_signal else ended.si_status})
                if not self._running:  # the end is recorded before the last one is forgotten
                    return
                record(self._run, self._exits)
            os.waitpid(ended.si_pid, 0)

    def _add(self, statuses: Mapping[int, int]) -> None:
        self._exits = Exits((*self._exits.statuses, *statuses.items()))
        self._running -= set(statuses)


def record(run: RunFolder, fact: Any) -> None:
    """Write a record of a run that exists; waits for as long as the disk is full."""
    while run.folder.exists():
        try:
            run.keep(fact)
            return
        except StorageError:
            time.sleep(1.0)


def fork_guard(run: RunFolder, booted: float) -> int:
    """Start a process that ends the run when this one, its keeper, is killed; returns its pid."""
    me = os.getpid()
    keeper = os.pidfd_open(me)
    pid = os.fork()
    if not pid:
        _in_fork(lambda: _guard_without_workers(run, keeper, booted))
    os.close(keeper)
    if (start := run.read(Start)) is not None:
        record(
            run,
            replace(start, keeper=me, keeper_started=_started(me), guard=pid, guard_started=_started(pid)),
        )
    return pid


def _guard_without_workers(run: RunFolder, keeper: int, booted: float) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    select.select([keeper], [], [])
    while run.read(End) is None and run.folder.exists():
        with contextlib.suppress(StorageError):
            if end_abandoned(run, booted + seconds_since_boot()):
                return
        time.sleep(0.1)


def _forget_children() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CANNOT_RUN = 127  # the exit status of a shell


def supervise(message: Mapping[str, Any], answer: int, log: int, lock: int) -> None:
    """Become the guard of a new run, and fork its keeper.

    The keeper holds the lock, which excludes other launches, until it has recorded the processes.
    """
    run = RunFolder(Path(message["folder"]))
    group = group_of(run)
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    gate_reader, gate = os.pipe()
    guard, limit, booted = os.getpid(), LogLimit(log, message["log"]), message["booted"]
    keeper = os.fork()
    if keeper:
        for descriptor in (gate_reader, answer, lock):
            os.close(descriptor)
        _stand_by(run, keeper, gate, limit, booted)
        return
    try:
        gang = WorkerProcesses(message["command"], message["environments"], group, (gate_reader, gate))
        me = os.getpid()
        start = Start(
            booted + seconds_since_boot(), gang.pids, me, _started(me), guard, _started(guard), boot_id()
        )
        run.keep(start)
        gang.go()
    except (TrimtabError, OSError) as error:
        group.remove()
        with contextlib.suppress(StorageError):
            run.keep(End(booted + seconds_since_boot(), _CANNOT_RUN, 0))
        _answer(answer, refused=str(error), passing=isinstance(error, StorageError | OSError))
        return
    os.close(lock)
    _answer(answer, refused=None)
    RunKeeper(run, start, limit, booted).keep()


def _stand_by(run: RunFolder, keeper: int, gate: int, limit: LogLimit, booted: float) -> None:
    """Wait for the keeper's end; where the run has not ended then, go on as its keeper."""
    while os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        # The kernel makes this process the parent of the workers in the instant in which the keeper ends.
        if ended and os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            os.waitpid(ended.si_pid, 0)
    os.waitpid(keeper, 0)
    end = run.read(End)  # first: of a launch that is undone, `Start` is removed before it
    start = run.read(Start)
    if start is None or end is not None:
        _forget_children()
        return
    guard = fork_guard(run, booted)
    open_gate(gate, len(start.pids))  # the keeper may have been killed before it did
    RunKeeper(run, replace(start, guard=guard), limit, booted).keep()


def execute(message: Mapping[str, Any], answer: int) -> None:
    """Run a command in the control group of a run; answers its exit status, or null after `timeout` s."""
    group = group_of(RunFolder(Path(message["folder"])))
    try:
        process = WorkerProcesses(message["command"], [message["environment"]], group, os.pipe())
        process.go()
    except (TrimtabError, OSError) as error:
        _answer(answer, refused=str(error))
        return
    (pid,) = process.pids
    ended = os.pidfd_open(pid)
    status = None
    if select.select([ended], [], [], message["timeout"])[0]:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        status = 128 - code if code < 0 else code
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    _answer(answer, refused=None, status=status)


def serve() -> NoReturn:
    """Fork a process for each request that comes on standard input, a socket, until that is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets children that have ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # otherwise the first collection of each supervisor copies all memory
    requests = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not data:
            os._exit(0)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # recv_fds ignores the flag that would do this
        if os.fork() == 0:
            requests.close()
            _in_fork(functools.partial(_serve_request, *descriptors))
        for descriptor in descriptors:
            os.close(descriptor)


def _serve_request(message: int, answer: int, log: int, lock: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    with os.fdopen(message, encoding="utf-8") as file:
        file.seek(0)
        content = json.load(file)
    os.dup2(log, 2)
    with contextlib.suppress(OSError):
        os.chdir(content["cwd"])
    if "environments" in content:
        supervise(content, answer, log, lock)
    else:
        execute(content, answer)


def _in_fork(act: Callable[[], None]) -> NoReturn:
    """Act in a process that was just forked, and end it: it must not go on with its parent's work."""
    try:
        act()
    except Exception as error:
        words = f"the supervisor of the run failed: {type(error).__name__}: {one_line(str(error))}\n"
        os.write(_ERRORS, words.encode(errors="replace"))
    finally:
        os._exit(0)


def _answer(pipe: int, **answer: Any) -> None:
    with contextlib.suppress(OSError):  # the engine may have died
        os.write(pipe, json.dumps(answer).encode() + b"\n")
    with contextlib.suppress(OSError):
        os.close(pipe)
