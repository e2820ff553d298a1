"""This machine as an engine: every run is a gang of workers in a control group of its own.

Limits go as far as the machine does: 96 CPUs on a machine with 8 are 8. Each run has a small supervisor
process that records how it ended, so nothing is lost while Trimtab itself is not running.
"""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from trimtab.core import (
    BadInputError,
    Clock,
    EngineEvent,
    Launch,
    Node,
    NotFoundError,
    RealClock,
    TrimtabError,
    home,
    without_secrets,
)
from trimtab.engines.launch import amount, check_launch, signal_number
from trimtab.engines.local.keeper import End, RunGroup, Start, WorkerDevices, group_of, is_kept, is_lost
from trimtab.engines.local.nodes import environments, give, machine, nodes_at
from trimtab.engines.run_folder import Intent, RunFolder, RunFolders, within
from trimtab.kernel import (
    ContainerGroup,
    GroupBusyError,
    GroupGoneError,
    Hierarchy,
    LimitedGroup,
    NoGroupError,
    find_hierarchy,
    mounted,
)

_ENDS_WITHIN = 10.0  # s from the last process's end to the note of it


class LocalEngine:
    """Runs gangs on this machine; what it knows of them is kept in `place`."""

    def __init__(self, address: str = "", place: Path | None = None, clock: Clock | None = None) -> None:
        self._address = address
        self._kept = RunFolders(place or home() / "engines" / "local")
        self._clock = clock or RealClock()
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}
        if address:
            nodes_at(address)

    def nodes(self) -> Sequence[Node]:
        """This machine, or what its address says it should pretend to be."""
        return self._nodes

    @cached_property
    def _nodes(self) -> tuple[Node, ...]:
        return nodes_at(self._address)

    def launch(self, launch: Launch) -> str:
        """Start it; the run's id, the same one for the same key. What is refused leaves nothing behind."""
        with self._kept.alone() as lock:
            run = self._kept.of_key(launch.key)
            if run.read(Start) is None:
                self._begin(run, launch, lock)
        return run.id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """New limits of a running one, in CPUs and bytes of each worker; None leaves what is."""
        run = self._kept.named(run_id)
        intent = run.read(Intent)
        workers = intent.workers if intent else 1
        for what, value, most in zip(("CPUs", "bytes of memory"), (cpus, memory), machine(), strict=True):
            if value is not None and not 0 < value * workers <= most:
                wanted, has = amount(value, what), amount(most, what)
                each = f" for each of {workers} workers" if workers > 1 else ""
                raise BadInputError(f"{wanted}{each} cannot be given; this machine has {has}")
        group = group_of(run)
        try:
            with ContainerGroup(Hierarchy(group.version, group.folders), "") as limits:
                if memory is not None:  # first, because the kernel may refuse it
                    limits.limit_memory(math.floor(memory * workers))
                if cpus is not None:
                    limits.limit_cpus(cpus * workers)
        except GroupBusyError:
            raise BadInputError(f"the run {run_id} uses more memory than that; its limits stay") from None
        except GroupGoneError:
            raise NotFoundError(f"the run {run_id} has ended; it has no limits any more") from None

    def signal(self, run_id: str, name: str) -> None:
        """Send every worker a signal such as "USR1": the processes themselves, not what they have started."""
        number = signal_number(name)
        run = self._kept.named(run_id)
        start = run.read(Start)
        there = set(group_of(run).pids())
        workers = [pid for pid in (start.pids if start else ()) if pid in there]
        if not workers:
            raise NotFoundError(f"the run {run_id} has ended; nobody is there to hear {name}")
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """End it with all it started: asked first, killed after `grace` seconds."""
        run = self._kept.named(run_id)
        if run.read(Start) is None:
            with self._kept.alone():  # it may be about to start
                pass
        group = group_of(run)
        if run.read(End) is None and (group.pids() or is_kept(run)):
            run.mark_stopping()
            group.signal(signal.SIGTERM)
            if not within(grace, lambda: not group.pids()):
                group.kill()
            if group.pids():
                raise TrimtabError(f"the run {run_id} cannot be killed; its processes are {group.pids()}")
            within(_ENDS_WITHIN, lambda: run.read(End) is not None or not is_kept(run))
        group.remove()
        self._reap()

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call, oldest run first; does not block.

        An event counts as told once the next one is asked for; what was not told before Trimtab ended is told
        after it starts again.
        """
        self._reap()
        for run, _ in self._kept.unfinished():
            yield from run.report(self._news(run))

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that have not ended, with their keys; also those of an earlier Trimtab.

        A launch that was broken off before anything ran is cleared away: it can be launched again.
        """
        with self._kept.alone():
            for run, _ in self._kept.unfinished():
                if run.read(Start) is None:
                    _clear(run)
        return {run.id: intent.key for run, intent in self._kept.unfinished() if not _is_over(run)}

    def log(self, run_id: str) -> Path:
        """The file with what the workers have written."""
        return self._kept.named(run_id).log

    def _begin(self, run: RunFolder, launch: Launch, lock: int) -> None:
        """First the intent, then the act; whatever fails, or is left from one broken off, is undone."""
        nodes = {node.name: node for node in self._nodes}
        check_launch(launch, nodes)
        given = give(launch, nodes, self._taken())
        with contextlib.ExitStack() as undo:
            undo.callback(_clear, run)
            run.make(Intent(launch.key, launch.workload.name, self._clock.now(), launch.workers))
            group = _new_group(run)
            folders = {name: str(folder) for name, folder in group.folders.items()}
            run.keep(RunGroup(group.version, folders, given))
            _limit(group, launch)
            keeper = _start_keeper(run, lock)
            undo.callback(keeper.wait)
            undo.callback(keeper.kill)
            variables = list(environments(launch, given, _free_port()))
            _introduce(keeper, run, launch.workload.command, variables, lock)
            self._keepers[run.id] = keeper
            undo.pop_all()

    def _taken(self) -> Iterator[WorkerDevices]:
        """Accelerators that runs have now."""
        for run, _ in self._kept.unfinished():
            ground = run.read(RunGroup)
            if ground is not None and run.read(Start) is not None and not _is_over(run):
                yield from ground.given

    def _news(self, run: RunFolder) -> Iterator[EngineEvent]:
        lost = is_lost(run)  # before the end is looked for: it is written before its keeper goes
        start, end = run.read(Start), run.read(End)
        if start is not None and "started" not in run.reported:
            processes = "process" if len(start.pids) == 1 else "processes"
            yield EngineEvent(run.id, start.time, "started", f"{processes} {', '.join(map(str, start.pids))}")
        if end is not None:
            yield _end_event(run, end)
        elif lost:
            group_of(run).remove()
            yield EngineEvent(run.id, self._clock.now(), "lost", "it is gone; how it ended is not known")

    def _reap(self) -> None:
        self._keepers = {run_id: keeper for run_id, keeper in self._keepers.items() if keeper.poll() is None}


def _is_over(run: RunFolder) -> bool:
    return is_lost(run) or run.read(End) is not None


def _end_event(run: RunFolder, end: End) -> EngineEvent:
    well = end.status == 0 or run.stopping
    words = ["stopped"] if run.stopping else []
    words.append(f"status {end.status}")
    if end.kills:
        words.append(f"out of memory: the kernel killed {end.kills} of its processes")
    return EngineEvent(run.id, end.time, "ended" if well else "failed", ", ".join(words))


def _start_keeper(run: RunFolder, lock: int) -> "subprocess.Popen[bytes]":
    log = os.open(run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            # Without -P a file called json.py in the current folder would be taken for Python's own.
            [sys.executable, "-P", "-c", "from trimtab.engines.local.keeper import keep; keep()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=without_secrets(os.environ),
            pass_fds=(lock,),
            start_new_session=True,
        )
    finally:
        os.close(log)


def _introduce(
    keeper: "subprocess.Popen[bytes]",
    run: RunFolder,
    command: Sequence[str],
    variables: Sequence[Mapping[str, str]],
    lock: int,
) -> None:
    """Tell it what to start; raises with its sentence where that fails."""
    wanted = {
        "folder": str(run.folder.absolute()),
        "command": list(command),
        "environments": variables,
        "lock": lock,
    }
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    out = b""
    with contextlib.suppress(BrokenPipeError), keeper.stdin, keeper.stdout:
        keeper.stdin.write(json.dumps(wanted).encode() + b"\n")
        keeper.stdin.flush()
        out = keeper.stdout.readline()
    if out:
        answer = json.loads(out)
        if answer["refused"] is not None:
            raise BadInputError(answer["refused"])
    elif run.read(Start) is None:
        raise TrimtabError("the process beside the run died before anything was started; try again")


def _new_group(run: RunFolder) -> LimitedGroup:
    """At the top, where its path is the same for every controller and a pool can name it; else below us."""
    _remove_groups(run)
    try:
        return LimitedGroup.create(mounted(), _group_name(run))
    except NoGroupError:
        return LimitedGroup.create(find_hierarchy(), _group_name(run))


def _remove_groups(run: RunFolder) -> None:
    """Wherever one can be: a launch that was broken off may have made it without writing down where."""
    for place in (mounted(), find_hierarchy()):
        if place is not None:
            folders = {name: folder / _group_name(run) for name, folder in place.folders.items()}
            LimitedGroup(place.version, folders).remove()


def _group_name(run: RunFolder) -> str:
    return f"trimtab-run-{run.id}"


def _limit(group: LimitedGroup, launch: Launch) -> None:
    """Limit what all workers use together; 0 means the whole machine."""
    cpus, memory = machine()
    group.limit_cpus(min(launch.cpus * launch.workers or cpus, cpus))
    group.limit_memory(min(launch.memory * launch.workers or memory, memory))


def _clear(run: RunFolder) -> None:
    group_of(run).remove()
    _remove_groups(run)
    run.forget()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
