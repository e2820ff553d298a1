"""Runs a command for a while and says what it did: launch, sample, listen, stop, sum up."""

import secrets
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.core import Clock, Profile, RealClock, Workload, format_duration
from trimtab.observe.facts import read_facts
from trimtab.observe.gpu import Gpus
from trimtab.observe.host import describe_host
from trimtab.observe.interrupts import Interrupts
from trimtab.observe.listening import Listening
from trimtab.observe.meter import Meter, Reading, series
from trimtab.observe.run import Run, sweep_runs

ENOUGH_STEPS = 50
ENOUGH_SECONDS = 5.0
_LOOK_EVERY = 0.1  # s; how late an exit or a signal may be noticed


@dataclass(frozen=True, slots=True)
class Settings:
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
    settings: Settings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    interrupts: Interrupts | None = None,
    clock: Clock | None = None,
) -> Profile:
    """Run `command` and say what it did. Nothing it started is left running, whatever happens.

    A signal caught by `interrupts` ends the run early; what was seen until then is still the profile.
    """
    settings, clock = settings or Settings(), clock or RealClock()
    created = clock.now()
    sweep_runs()
    gpus = Gpus()
    try:
        host = describe_host(gpus)
        with Listening() as listening, interrupts or Interrupts() as caught:
            with Run(command, listening.variables()) as run:
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
    run: Run,
    meter: Meter,
    listening: Listening,
    settings: Settings,
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


def _enough(settings: Settings, steps: int, elapsed: float) -> bool:
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
