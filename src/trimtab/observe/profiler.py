"""Runs a command for a while and measures it: launch, sample, listen, stop, sum up."""

import itertools
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.core import Clock, Profile, RealClock, Series, Workload, format_duration
from trimtab.kernel import network_bytes, process_io
from trimtab.observe.host import Gpus, describe_host
from trimtab.observe.listening import ListenerFolder, read_facts
from trimtab.observe.run import CommandRun, Interrupts, sweep_runs

_COLUMNS = ("cpu", "disk_read", "disk_write", "network_in", "network_out")
ENOUGH_STEPS = 50
ENOUGH_SECONDS = 5.0
_LOOK_EVERY = 0.1  # s; how late an exit or a signal may be noticed


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals since the start of the run (`cpu` in s, disk and network in bytes) and what is in use at `time`.

    `time` is seconds since the start; `gpu` is None without a GPU, else (busy share, bytes).
    """

    time: float
    cpu: float
    memory: float
    disk_read: float
    disk_write: float
    network_in: float
    network_out: float
    gpu: tuple[float, float] | None


class Meter:
    """Reads one run. What processes had used when last seen stays counted after they have ended."""

    def __init__(self, run: CommandRun, gpus: Gpus) -> None:
        self._run = run
        self._gpus = gpus
        self._cpu: dict[tuple[int, int], float] = {}
        self._disk: dict[tuple[int, int], tuple[float, float]] = {}
        self._network_before = network_bytes(run.pid) or (0.0, 0.0)
        self._network = (0.0, 0.0)

    def read(self) -> Reading:
        """One reading, now."""
        group = self._run.group
        members = self._run.members()
        for member in members:
            key = (member.pid, member.started)
            self._cpu[key] = member.cpu
            if (done := process_io(member.pid)) is not None:
                self._disk[key] = done
        cpu = group.cpu_seconds() if group is not None else None
        memory = group.memory() if group is not None else None
        disk = group.io() if group is not None else None
        disk = disk or (sum(d[0] for d in self._disk.values()), sum(d[1] for d in self._disk.values()))
        received, sent = self._read_network()
        return Reading(
            time=time.monotonic() - self._run.started,
            cpu=sum(self._cpu.values()) if cpu is None else cpu,
            memory=sum(member.memory for member in members) if memory is None else memory,
            disk_read=disk[0],
            disk_write=disk[1],
            network_in=received,
            network_out=sent,
            gpu=self._gpus.usage(),
        )

    def _read_network(self) -> tuple[float, float]:
        now = network_bytes(self._run.pid)
        if now is not None:
            self._network = (now[0] - self._network_before[0], now[1] - self._network_before[1])
        return self._network


def series(readings: list[Reading]) -> Series:
    """Rates between successive readings, each at the time of the later one."""
    pairs = [(before, after) for before, after in itertools.pairwise(readings) if after.time > before.time]
    rates = {
        column: tuple(
            max(0.0, getattr(after, column) - getattr(before, column)) / (after.time - before.time)
            for before, after in pairs
        )
        for column in _COLUMNS
    }
    gpu = [after.gpu for _, after in pairs if after.gpu is not None]
    complete = len(gpu) == len(pairs)
    return Series(
        time=tuple(after.time for _, after in pairs),
        memory=tuple(after.memory for _, after in pairs),
        gpu=tuple(busy for busy, _ in gpu) if complete else (),
        gpu_memory=tuple(memory for _, memory in gpu) if complete else (),
        **rates,
    )


@dataclass(frozen=True, slots=True)
class ProfilerSettings:
    """How to profile. `window` and `every` in seconds.

    The run ends early after `steps` undisturbed training steps; without `steps`, after 50 of them and 5 s,
    unless `full` asks for the whole window.
    """

    window: float = 120.0
    every: float = 1.0
    name: str | None = None
    steps: int | None = None
    full: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a profile run stands: seconds, cores, bytes, undisturbed training steps seen."""

    elapsed: float
    window: float
    cpu: float
    memory: float
    steps: int


@dataclass(frozen=True, slots=True)
class _Watched:
    readings: list[Reading]
    signal: int | None  # what Trimtab itself was ended by


def profile(
    command: Sequence[str],
    settings: ProfilerSettings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    interrupts: Interrupts | None = None,
    clock: Clock | None = None,
) -> Profile:
    """Run `command` and say what it did. Nothing it started is left running, whatever happens.

    A signal caught by `interrupts` ends the run early; what was seen until then is still the profile.
    """
    settings, clock = settings or ProfilerSettings(), clock or RealClock()
    created = clock.now()
    sweep_runs()
    gpus = Gpus()
    try:
        host = describe_host(gpus)
        with ListenerFolder() as listening, interrupts or Interrupts() as caught:
            with CommandRun(command, listening.variables()) as run:
                watched = _watch(run, Meter(run, gpus), listening, settings, caught, on_progress)
                status, method = run.status() or 0, run.method
                ended = _ended(run.ended_by)
            listening.update()
            facts = read_facts(listening.records)
    finally:
        gpus.close()
    name = settings.name or name_of(command)
    return Profile(
        id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(created))}-{secrets.token_hex(3)}",
        created=created,
        workload=Workload(name=name, command=tuple(command)),
        host=host,
        window=watched.readings[-1].time,
        every=settings.every,
        method=method,
        ended=ended,
        status=status,
        series=series(watched.readings),
        model=facts.model,
        steps=facts.steps,
        notes=(*_run_notes(watched, method, ended, status), *facts.notes),
    )


def name_of(command: Sequence[str]) -> str:
    """A name for a command: its script's or module's, else the program's."""
    words = list(command)
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].rsplit(".", 1)[-1]
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0])
    return Path(script).stem or script


def _watch(
    run: CommandRun,
    meter: Meter,
    listening: ListenerFolder,
    settings: ProfilerSettings,
    interrupts: Interrupts,
    on_progress: Callable[[Progress], None] | None,
) -> _Watched:
    """Sample until the command has ended, the window is over, or enough has been seen; then stop it."""
    readings = [meter.read()]
    due = settings.every
    while run.status() is None and interrupts.received is None:
        elapsed = time.monotonic() - run.started
        if elapsed >= settings.window:
            break
        if elapsed >= due:
            due = max(due + settings.every, elapsed)
            readings.append(meter.read())
            if on_progress is not None:
                on_progress(_progress(readings, settings.window, listening.steps()))
        listening.update()
        if _enough(settings, listening.steps(), elapsed):
            break
        time.sleep(min(_LOOK_EVERY, max(0.0, settings.window - elapsed), max(0.01, due - elapsed)))
    readings.append(meter.read())
    if interrupts.received is None:
        listening.announce_stop()
    run.stop()
    return _Watched(readings, interrupts.received)


def _run_notes(watched: _Watched, method: str, ended: str, status: int) -> tuple[str, ...]:
    lasted = format_duration(watched.readings[-1].time)
    notes = []
    if method == "process-tree":
        notes.append("no control group could be made; processes were followed from parent to child")
    if watched.signal is not None:
        notes.append(f"profiling was interrupted after {lasted}")
    elif ended == "exited":
        notes.append(f"the command ended by itself after {lasted} with status {status}")
    if watched.readings[-1].network_in or watched.readings[-1].network_out:
        notes.append("network bytes are of everyone in the command's network namespace")
    if watched.readings[-1].gpu is not None:
        notes.append("GPU use is of everyone on this machine's devices")
    return tuple(notes)


def _enough(settings: ProfilerSettings, steps: int, elapsed: float) -> bool:
    if settings.steps is not None:
        return steps >= settings.steps
    return not settings.full and steps >= ENOUGH_STEPS and elapsed >= ENOUGH_SECONDS


def _progress(readings: list[Reading], window: float, steps: int) -> Progress:
    before, now = readings[-2:]
    cpu = (now.cpu - before.cpu) / max(1e-9, now.time - before.time)
    return Progress(now.time, window, cpu, now.memory, steps)


def _ended(ended_by: int | None) -> str:
    names = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGKILL: "killed"}
    return "exited" if ended_by is None else names[signal.Signals(ended_by)]
