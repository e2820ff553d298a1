"""This machine as an engine: every run is a command in a control group of its own, limited to its offer.

Limits go as far as the machine does: an offer of 96 CPUs on a machine with 8 gets 8. Accelerators are not
limited. Each run has a small process beside it that writes down how it ended, so nothing is forgotten while
Trimtab itself is not running.
"""

import contextlib
import json
import math
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trimtab.core import (
    BadInputError,
    Clock,
    Configuration,
    EngineEvent,
    NotFoundError,
    RealClock,
    StorageError,
    TrimtabError,
    Workload,
    home,
)
from trimtab.core.units import format_bytes
from trimtab.engines.kept_run import End, KeptRun, Launch, Told, make_folder
from trimtab.kernel import (
    ContainerGroup,
    GroupBusyError,
    GroupGoneError,
    Hierarchy,
    LimitedGroup,
    NoGroupError,
    cpu_limit,
    memory_limit,
    mounted,
)

GRACE = 10.0
"""Seconds between asking a run to end and killing it."""

_BEGINS_WITHIN = 30.0  # s from the launch to the first sign of its process
_ENDS_WITHIN = 10.0  # s from the last process's end to the note of it
_RUN_ID = re.compile(r"[0-9a-f]{12}")
_FINAL = {"ended", "failed", "lost"}


class LocalEngine:
    """Launches, resizes, stops and watches runs on this machine; what it knows is kept in `place`."""

    def __init__(self, place: Path | None = None, clock: Clock | None = None, grace: float = GRACE) -> None:
        self._place = place or home() / "engines" / "local"
        self._clock = clock or RealClock()
        self._grace = grace
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}
        self._finished = set[str]()

    def launch(self, workload: Workload, configuration: Configuration) -> str:
        """Start the workload's command with the offer's CPUs and memory; the run's id."""
        if not workload.command or not workload.command[0]:
            raise BadInputError(f'the workload "{workload.name}" has no command; there is nothing to start')
        if configuration.nodes != 1:
            raise BadInputError(f"this is one machine; {configuration.nodes} nodes need an engine for many")
        offer = configuration.offer
        if not (offer.vcpus > 0 and offer.memory > 0):
            raise BadInputError(f"the offer {offer.key} has no CPUs or no memory; nothing runs on it")
        run_id = secrets.token_hex(6)
        with contextlib.ExitStack() as undo:
            group = undo.enter_context(_new_group(f"trimtab-run-{run_id}"))
            cpus, memory = _machine()
            group.limit_cpus(min(offer.vcpus, cpus))
            group.limit_memory(min(offer.memory, memory))
            run = self._new_run(run_id, workload, group)
            undo.callback(shutil.rmtree, run.folder, ignore_errors=True)
            keeper = _start_keeper(run)
            undo.callback(keeper.wait)
            undo.callback(keeper.kill)
            _introduce(keeper, run, workload.command)
            self._keepers[run_id] = keeper
            undo.pop_all()
        return run_id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """New limits of a running one, in CPUs and bytes; None leaves what is."""
        run = self._run(run_id)
        for what, value, most in zip(("CPUs", "bytes of memory"), (cpus, memory), _machine(), strict=True):
            if value is not None and not 0 < value <= most:
                shown = format_bytes(most) if what != "CPUs" else f"{most:g} CPUs"
                raise BadInputError(f"{value:g} {what} cannot be given; this machine has {shown}")
        group = run.group()
        try:
            with ContainerGroup(Hierarchy(group.version, group.folders), "") as limits:
                if memory is not None:  # first, because the kernel may refuse it
                    limits.limit_memory(math.floor(memory))
                if cpus is not None:
                    limits.limit_cpus(cpus)
        except GroupBusyError:
            raise BadInputError(f"the run {run_id} uses more memory than that; its limits stay") from None
        except GroupGoneError:
            raise NotFoundError(f"the run {run_id} has ended; it has no limits any more") from None

    def stop(self, run_id: str) -> None:
        """End it with all it started: asked first, killed after the grace. One that has ended stays so."""
        run = self._run(run_id)
        group = run.group()
        if run.end() is None and (group.pids() or run.kept()):
            run.mark_stopping()
            group.signal(signal.SIGTERM)
            if not _within(self._grace, lambda: not group.pids()):
                group.kill()
            if group.pids():
                raise TrimtabError(f"the run {run_id} cannot be killed; its processes are {group.pids()}")
            _within(_ENDS_WITHIN, lambda: run.end() is not None or not run.kept())
        group.remove()
        self._reap()

    def watch(self) -> Iterator[EngineEvent]:
        """What has happened since the last time, oldest run first; does not wait for more.

        An event counts as told once the next one is asked for; what was not told before Trimtab ended is told
        after it starts again.
        """
        self._reap()
        for run in self._runs():
            for event in self._news(run):
                yield event
                run.keep(Told((*run.told().events, event.what)))

    def running(self) -> list[str]:
        """Ids of the runs that have not ended, oldest first; also those of an earlier Trimtab."""
        return [run.id for run in self._runs() if run.end() is None and not self._is_lost(run)]

    def log(self, run_id: str) -> Path:
        """The file with what the run's command has written."""
        return self._run(run_id).log

    def _new_run(self, run_id: str, workload: Workload, group: LimitedGroup) -> KeptRun:
        try:
            run = make_folder(self._place, run_id)
        except OSError as error:
            raise StorageError(f"runs cannot be kept in {self._place}: {error.strerror}") from None
        folders = {name: str(folder) for name, folder in group.folders.items()}
        run.keep(Launch(workload.name, self._clock.now(), group.version, folders))
        return run

    def _run(self, run_id: str) -> KeptRun:
        run = KeptRun(self._place / run_id)
        if not _RUN_ID.fullmatch(run_id) or run.launch() is None:
            raise NotFoundError(f'no run here is called "{run_id}"')
        return run

    def _runs(self) -> list[KeptRun]:
        """Those whose end has not been told."""
        names = [name for name in _listed(self._place) if _RUN_ID.fullmatch(name)]
        runs = [KeptRun(self._place / name) for name in names if name not in self._finished]
        self._finished.update(run.id for run in runs if _FINAL & set(run.told().events))
        known = [(launch.time, run) for run in runs if (launch := run.launch()) is not None]
        return [run for _, run in sorted(known, key=lambda each: each[0]) if run.id not in self._finished]

    def _news(self, run: KeptRun) -> Iterator[EngineEvent]:
        lost = self._is_lost(run)  # before the end is looked for: it is written before its keeper goes
        start, end = run.start(), run.end()
        if start is not None and "started" not in run.told().events:
            yield EngineEvent(run.id, start.time, "started", f"process {start.pid}")
        if end is not None:
            yield _end_event(run, end)
        elif lost:
            run.group().remove()
            yield EngineEvent(run.id, self._clock.now(), "lost", "it is gone; how it ended is not known")

    def _is_lost(self, run: KeptRun) -> bool:
        """Neither it nor the process beside it is there, and it had time to begin."""
        launch = run.launch()
        begun = run.start() or not launch or self._clock.now() > launch.time + _BEGINS_WITHIN
        return bool(begun) and not run.kept() and not run.group().pids()

    def _reap(self) -> None:
        self._keepers = {run_id: keeper for run_id, keeper in self._keepers.items() if keeper.poll() is None}


def _end_event(run: KeptRun, end: End) -> EngineEvent:
    well = end.status == 0 or run.stopping
    words = ["stopped"] if run.stopping else []
    words.append(f"status {end.status}")
    if end.kills:
        words.append(f"out of memory: the kernel killed {end.kills} of its processes")
    return EngineEvent(run.id, end.time, "ended" if well else "failed", ", ".join(words))


def _start_keeper(run: KeptRun) -> "subprocess.Popen[bytes]":
    log = os.open(run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            # Without -P a file called json.py in the current folder would be taken for Python's own.
            [sys.executable, "-P", "-c", "from trimtab.engines.keeper import keep; keep()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def _introduce(keeper: "subprocess.Popen[bytes]", run: KeptRun, command: Sequence[str]) -> None:
    """Tell it what to start; raises with its sentence where that fails."""
    asked = {"folder": str(run.folder.absolute()), "command": list(command)}
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    out = b""
    with contextlib.suppress(BrokenPipeError), keeper.stdin, keeper.stdout:
        keeper.stdin.write(json.dumps(asked).encode() + b"\n")
        keeper.stdin.flush()
        out = keeper.stdout.readline()
    answer = json.loads(out or b'{"refused": "the process beside the run died; try again"}')
    if answer["refused"] is not None:
        raise BadInputError(answer["refused"])


def _new_group(name: str) -> LimitedGroup:
    """At the top, where its path is the same for every controller and a pool can name it; else below us."""
    try:
        return LimitedGroup.create(mounted(), name)
    except NoGroupError:
        return LimitedGroup.create(name=name)


def _machine() -> tuple[float, float]:
    """CPUs and bytes of memory there are for runs."""
    cpus = float(len(os.sched_getaffinity(0)))
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(cpus, cpu_limit() or cpus), min(memory, memory_limit() or memory)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{folder} cannot be read: {error.strerror}") from None


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether it came true in that time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
