"""This machine as an engine: every run is a gang of workers in a control group of its own.

Limits go as far as the machine does: 96 CPUs on a machine with 8 are 8. Each run has two small supervisor
processes that record how it ended, so nothing is lost while Trimtab itself is not running.
"""

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from trimtab.core import (
    BadInputError,
    Clock,
    EngineEvent,
    Launch,
    Node,
    NotFoundError,
    TrimtabError,
    home,
    inherited,
)
from trimtab.engines.launch import amount, check_launch, signal_number
from trimtab.engines.local.nodes import assign_devices, environments, machine, nodes_at
from trimtab.engines.local.supervisor import (
    End,
    RunGroup,
    Start,
    WorkerDevices,
    end_abandoned,
    group_of,
    is_abandoned,
    is_supervised,
)
from trimtab.engines.run_folder import Intent, RunFolder, RunFolders, within
from trimtab.kernel import (
    ContainerGroup,
    GroupBusyError,
    GroupGoneError,
    Hierarchy,
    LimitedGroup,
    NoGroupError,
    SteadyClock,
    environment as process_environment,
    find_hierarchy,
    mounted,
    seconds_since_boot,
)

_OLDEST_LISTING = 1.0  # s until a run that another process has launched is found
_ANSWERS_WITHIN = 30.0  # s for a fork and the start of the workers
_ENDS_WITHIN = 10.0  # s from the last process's end to the note of it


class SupervisorStarter:
    """Asks one child process, started with the first request, to fork supervisors: a fork takes milliseconds.

    It ends with this object, and its supervisors outlive it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._socket: socket.socket | None = None
        self._close: Callable[[], object] = int

    def request(self, run: RunFolder, message: Mapping[str, Any], lock: int | None = None) -> Any:
        """Send a request for a run; returns the answer, or None if the process that should answer died."""
        text = json.dumps({**message, "folder": str(run.folder.absolute()), "cwd": os.getcwd()})
        with contextlib.ExitStack() as stack:
            content = stack.enter_context(os.fdopen(os.memfd_create("request"), "wb", buffering=0))
            content.write(text.encode())
            log = run.open_log()
            stack.callback(os.close, log)
            reader, writer = os.pipe()
            answers = stack.enter_context(os.fdopen(reader, "rb"))
            try:
                self._send((content.fileno(), writer, log, log if lock is None else lock))
            finally:
                os.close(writer)
            patience = message.get("timeout", 0.0) + _ANSWERS_WITHIN
            line = answers.readline() if select.select([reader], [], [], patience)[0] else b""
        if not line:
            self._forget()  # it may be stopped
        return json.loads(line) if line else None

    def _forget(self) -> None:
        with self._lock:
            self._close()
            self._socket = None

    def _send(self, descriptors: Sequence[int]) -> None:
        with self._lock:
            fits = self._owner == os.getpid()  # a fork of the engine needs one of its own
            connection = self._socket if self._socket is not None and fits else self._start()
            try:
                socket.send_fds(connection, [b"."], descriptors)
            except OSError:  # it was killed since the last request
                socket.send_fds(self._start(), [b"."], descriptors)

    def _start(self) -> socket.socket:
        self._close()
        self._socket, other_end = socket.socketpair()
        self._owner = os.getpid()
        with other_end:
            process = subprocess.Popen(
                # Without -P, Python would import a json.py of the current folder instead of its own.
                [sys.executable, "-P", "-c", "from trimtab.engines.local.supervisor import serve; serve()"],
                stdin=other_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=inherited(os.environ),
                start_new_session=True,
            )
        self._close = weakref.finalize(self, _end_starter, self._socket, process)
        return self._socket


def _end_starter(connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    connection.close()
    process.kill()
    process.wait()


class LocalEngine:
    """Runs gangs on this machine; their records are in `place`."""

    def __init__(self, address: str = "", place: Path | None = None, clock: Clock | None = None) -> None:
        self._address = address
        self._runs = RunFolders(place or home() / "engines" / "local")
        self._clock = clock or SteadyClock()
        self._supervisors = SupervisorStarter()
        self._ended = set[str]()  # runs that had ended at the last wait
        if address:
            nodes_at(address)

    def nodes(self) -> Sequence[Node]:
        """This machine, or the simulated nodes of its address."""
        return self._nodes

    @cached_property
    def _nodes(self) -> tuple[Node, ...]:
        return nodes_at(self._address)

    def launch(self, launch: Launch) -> str:
        """Start it and return the run's id, which the key determines; a refused launch leaves nothing."""
        with self._runs.alone() as lock:
            run = self._runs.of_key(launch.key)
            if run.read(Start) is None:
                self._begin(run, launch, lock)
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """Change the limits of a run, in CPUs and bytes of each worker; None leaves a limit."""
        run = self._runs.named(run_id)
        intent = run.read(Intent)
        workers = intent.workers if intent else 1
        for unit, value, most in zip(("CPUs", "bytes of memory"), (cpus, memory), machine(), strict=True):
            if value is not None and not 0 < value * workers <= most:
                share = f" for each of {workers} workers" if workers > 1 else ""
                raise BadInputError(
                    f"the run {run_id} cannot have {amount(value, unit)}{share}; "
                    f"this machine has {amount(most, unit)}"
                )
        group = group_of(run)
        try:
            with ContainerGroup(Hierarchy(group.version, group.folders), "") as limits:
                if memory is not None:  # first, because the kernel may refuse it
                    limits.limit_memory(math.floor(memory * workers))
                if cpus is not None:
                    limits.limit_cpus(cpus * workers)
        except GroupBusyError:
            raise BadInputError(
                f"the run {run_id} uses more memory than the new limit of "
                f"{amount((memory or 0) * workers, 'bytes of memory')}; its limits are not changed"
            ) from None
        except GroupGoneError:
            raise NotFoundError(f"the run {run_id} has ended; it cannot be resized") from None

    def signal(self, run_id: str, name: str) -> None:
        """Send every worker a signal such as "USR1": to its first process only."""
        number = signal_number(name)
        for pid in self._workers(self._runs.named(run_id), f"{name} cannot be sent to it"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def execute(
        self, run_id: str, command: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        """Run a command in the run's control group, with its first worker's environment; its exit status.

        None if it has not ended after `timeout` seconds, when it is killed. Its output goes to the run's log.
        """
        run = self._runs.named(run_id)
        pid = next(iter(self._workers(run, f'"{command[0]}" cannot be run in it')))
        variables = {**inherited(os.environ), **environment, **process_environment(pid)}
        request = {"command": list(command), "environment": variables, "timeout": timeout}
        answer = self._supervisors.request(run, request)
        if not answer or answer["refused"] is not None:
            raise BadInputError(answer["refused"] if answer else "the process that should run it was killed")
        status: int | None = answer["status"]
        return status

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """End it with all its processes: SIGTERM first, SIGKILL after `grace` seconds."""
        run = self._runs.named(run_id)
        if run.read(Start) is None:
            with self._runs.alone():  # it may be about to start
                pass
        group = group_of(run)
        if run.read(End) is None and (group.pids() or is_supervised(run)):
            run.mark_stopping()
            group.signal(signal.SIGTERM)
            if not within(grace, lambda: not group.pids()):
                group.kill()
            if group.pids():
                raise TrimtabError(f"the run {run_id} cannot be killed; its processes are {group.pids()}")
            within(_ENDS_WITHIN, lambda: run.read(End) is not None or not is_supervised(run))
        group.remove()

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call, oldest run first; does not block.

        An event counts as reported once the next one is requested; unreported events are reported after a
        restart of Trimtab.
        """
        for run, _ in self._runs.unfinished(_OLDEST_LISTING):
            yield from run.report(self._news(run))

    def wait(self, seconds: float) -> None:
        """Wait until a run that is known here ends, at most so many seconds.

        Returns at once, but only once, if a run has ended and its end is not reported.
        """
        poll, supervisors = select.poll(), list[int]()
        runs = [run for run, _ in self._runs.unfinished(_OLDEST_LISTING)]
        ended = {run.id for run in runs if run.read(End) is not None}
        new, self._ended = ended - self._ended, ended
        if new:
            return
        try:
            for run in runs:
                start = run.read(Start)
                with contextlib.suppress(OSError):  # it has just ended
                    if start is not None and run.id not in ended:
                        supervisors.append(os.pidfd_open(start.keeper))
                        poll.register(supervisors[-1], select.POLLIN)
            poll.poll(1000.0 * seconds)
        finally:
            for descriptor in supervisors:
                os.close(descriptor)

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that have not ended, with their keys; also those of an earlier Trimtab.

        A launch that was interrupted before anything ran is removed: it can be launched again.
        """
        with self._runs.alone():
            for run, _ in self._runs.unfinished():
                if run.read(Start) is None:
                    _clear(run)
        return {run.id: intent.key for run, intent in self._runs.unfinished() if not _is_over(run)}

    def log(self, run_id: str) -> Path:
        """The file with the workers' output."""
        return self._runs.named(run_id).log

    def _begin(self, run: RunFolder, launch: Launch, lock: int) -> None:
        """Record the intent, then act; a failure, or the rest of an interrupted launch, is undone."""
        nodes = {node.name: node for node in self._nodes}
        check_launch(launch, nodes)
        devices = assign_devices(launch, nodes, self._used_devices() if launch.gpus else ())
        with contextlib.ExitStack() as undo:
            undo.callback(_clear, run)
            run.make(Intent(launch.key, launch.workload.name, self._clock.now(), launch.workers))
            group = _new_group(run)
            folders = {name: str(folder) for name, folder in group.folders.items()}
            run.keep(RunGroup(group.version, folders, devices))
            _limit(group, launch)
            own = inherited(os.environ)
            variables = [{**own, **more} for more in environments(launch, devices, _free_port())]
            request = {
                "command": launch.workload.command,
                "environments": variables,
                "log": launch.log,
                "booted": self._clock.now() - seconds_since_boot(),
            }
            answer = self._supervisors.request(run, request, lock)
            if answer and answer["refused"] is not None:  # for good, or because a disk is full, say
                raise (TrimtabError if answer["passing"] else BadInputError)(answer["refused"])
            if not answer and run.read(Start) is None:
                raise TrimtabError("the supervisor of the run died before anything was started; try again")
            undo.pop_all()
        self._runs.launched(run)

    def _used_devices(self) -> Iterator[WorkerDevices]:
        """Accelerators of the runs that have not ended."""
        for run, _ in self._runs.unfinished():
            group = run.read_once(RunGroup)
            if group is not None and run.read(Start) is not None and not _is_over(run):
                yield from group.given

    def _news(self, run: RunFolder) -> Iterator[EngineEvent]:
        abandoned = is_abandoned(run)  # before the end is read: a supervisor writes it before it exits
        start, end = run.read(Start), run.read(End)
        over = end is not None or (abandoned and end_abandoned(run, self._clock.now()))
        end = end or run.read(End)
        if start is not None and "started" not in run.reported:
            processes = "process" if len(start.pids) == 1 else "processes"
            yield EngineEvent(run.id, start.time, "started", f"{processes} {', '.join(map(str, start.pids))}")
        if end is not None:
            yield _end_event(run, end)
        elif over:
            yield EngineEvent(
                run.id, self._clock.now(), "lost", "the machine was restarted; its exit status is unknown"
            )

    def _workers(self, run: RunFolder, refusal: str) -> list[int]:
        """First processes of the workers that have not ended, by rank; NotFoundError if there are none."""
        start, alive = run.read(Start), set(group_of(run).pids())
        workers = [pid for pid in (start.pids if start else ()) if pid in alive]
        if not workers:
            raise NotFoundError(f"the run {run.id} has ended; {refusal}")
        return workers


def _is_over(run: RunFolder) -> bool:
    abandoned = is_abandoned(run) and not group_of(run).pids()
    return abandoned or run.read(End) is not None


def _end_event(run: RunFolder, end: End) -> EngineEvent:
    well = end.status == 0 or run.stopping
    words = ["stopped"] if run.stopping else []
    words.append(end.reason or f"status {end.status}")
    if end.kills:
        words.append(f"out of memory: the kernel killed {end.kills} of its processes")
    return EngineEvent(run.id, end.time, "ended" if well else "failed", ", ".join(words))


def _new_group(run: RunFolder) -> LimitedGroup:
    """A control group at the top, where a pool can name it by one path; else below this process's own."""
    _remove_groups(run)
    try:
        return LimitedGroup.create(mounted(), _group_name(run))
    except NoGroupError:
        return LimitedGroup.create(find_hierarchy(), _group_name(run))


def _remove_groups(run: RunFolder) -> None:
    """Remove its control groups wherever an interrupted launch may have made them."""
    for place in (mounted(), find_hierarchy()):
        if place is not None:
            folders = {name: folder / _group_name(run) for name, folder in place.folders.items()}
            LimitedGroup(place.version, folders).remove()


def _group_name(run: RunFolder) -> str:
    return f"trimtab-run-{run.id}"


def _limit(group: LimitedGroup, launch: Launch) -> None:
    """Limit the use of all workers together; 0 CPUs or bytes stand for the machine's own amount."""
    cpus, memory = machine()
    group.limit_cpus(min(launch.cpus * launch.workers or cpus, cpus))
    group.limit_memory(min(launch.memory * launch.workers or memory, memory))
    group.limit_processes(launch.processes * launch.workers)


def _clear(run: RunFolder) -> None:
    group_of(run).remove()
    _remove_groups(run)
    run.forget(first=Start)  # so that a guard which finds no `End` does not go on with this run


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
