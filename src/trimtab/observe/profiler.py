"""Runs a command for a while and measures it, and the machine that it runs on."""

import contextlib
import importlib
import itertools
import math
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trimtab.core import (
    BadInputError,
    Clock,
    Host,
    Profile,
    RealClock,
    Series,
    ThreadSteps,
    Workload,
    format_duration,
)
from trimtab.kernel import cpu_limit, memory_limit, network_bytes, process_io
from trimtab.observe.listening import FakeStop, ListenerFolder, fake_stop, read_facts
from trimtab.observe.run import CommandRun, Interrupts, sweep_runs

_COLUMNS = ("cpu", "disk_read", "disk_write", "network_in", "network_out")
ENOUGH_STEPS = 50
ENOUGH_SECONDS = 5.0
FEWEST_STEPS = 3
_TIMED_SECONDS = 10.0  # of steps that are timed at least, unless there are many
_LONGEST = 600.0  # s; without a window
_LONGEST_WITHOUT_PYTORCH = 120.0
_LOOK_EVERY = 0.1  # s; how late an exit or a signal may be noticed
_ENDED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGKILL: "killed"}


_LOOPS = 150_000
_SPEED_LASTS = 0.2  # s


class Gpus:
    """All NVIDIA devices of this machine. Call `close` when done."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[Any] = []
        with contextlib.suppress(Exception):
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._nvml = nvml
            self._devices = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]

    def __len__(self) -> int:
        return len(self._devices)

    def names(self) -> tuple[str, ...]:
        """Product names."""
        names = (self._nvml.nvmlDeviceGetName(device) for device in self._devices)
        return tuple(name.decode() if isinstance(name, bytes) else name for name in names)

    def usage(self) -> tuple[float, float] | None:
        """Busy share summed over devices and bytes of device memory in use, by anyone; None without a GPU."""
        busy = memory = 0.0
        try:
            for device in self._devices:
                busy += self._nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
                memory += float(self._nvml.nvmlDeviceGetMemoryInfo(device).used)
        except Exception:  # a device that fell off the bus must not end the profile
            return None
        return (busy, memory) if self._devices else None

    def close(self) -> None:
        """Release the library."""
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()


def describe_host(gpus: Gpus) -> Host:
    """CPU model, cores and memory this process may use, GPU names.

    `/proc/cpuinfo` has "model name\t: Intel(R) Xeon(R) …" on x86; ARM has no such line.
    """
    cpu = re.search(r"^model name\s*:\s*(.*?)\s*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return Host(cpu[1] if cpu else os.uname().machine, usable_cpus(), usable_memory(), gpus.names())


def usable_cpus() -> float:
    """CPUs this process may use."""
    cores = float(len(os.sched_getaffinity(0)))
    return min(cores, cpu_limit() or cores)


def usable_memory() -> float:
    """Bytes this process may use."""
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(memory, memory_limit() or memory)


@dataclass(slots=True)
class HostSpeed:
    """Measures this machine's speed by a fixed computation; a result counts for a moment."""

    _seconds: float = 0.0
    _since: float = -math.inf

    def probe(self) -> float:
        """Seconds that the computation takes now, or took a moment ago."""
        start = time.perf_counter()
        if start - self._since > _SPEED_LASTS:
            total = 0
            for number in range(_LOOPS):
                total += number & 7
            self._since = time.perf_counter()
            self._seconds = self._since - start
        return self._seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals since the start of the run (`cpu` in s, disk and network in bytes), and `memory` in use.

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
    """Reads the counters of a run; those of ended processes stay counted."""

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
        if (now := network_bytes(self._run.pid)) is not None:
            self._network = (now[0] - self._network_before[0], now[1] - self._network_before[1])
        received, sent = self._network
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
    """Settings of a profile; `window` and `every` in seconds.

    The run ends early after `steps` undisturbed training steps; without `steps`, after 50 of them and 5 s,
    unless `full` asks for the whole window. Without a `window` it also ends when the model's facts and three
    undisturbed steps are there and steps were timed for 10 s; at the latest after 10 minutes, or after 2 if
    the command does not import PyTorch. `fake` runs it with fake tensors until its first optimizer step.
    `threads` limits it to so many CPUs.
    """

    window: float | None = None
    every: float = 1.0
    name: str | None = None
    steps: int | None = None
    full: bool = False
    fake: bool = False
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a profile run: seconds, cores, bytes, undisturbed training steps, and what it waits for."""

    elapsed: float
    window: float
    cpu: float
    memory: float
    steps: int
    waits_for: str | None = None


def profile(
    command: Sequence[str],
    settings: ProfilerSettings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    interrupts: Interrupts | None = None,
    clock: Clock | None = None,
) -> Profile:
    """Run `command` and measure it. None of its processes is left running, whatever happens.

    A signal caught by `interrupts` ends the run early; the profile has the measurements until then.
    """
    settings, clock = settings or ProfilerSettings(), clock or RealClock()
    created = clock.now()
    sweep_runs()
    gpus = Gpus()
    try:
        host = describe_host(gpus)
        with ListenerFolder() as listening, interrupts or Interrupts() as caught:
            variables = listening.variables(settings.fake)
            with CommandRun(command, variables, settings.threads) as run:
                readings = _watch(run, Meter(run, gpus), listening, settings, caught, on_progress)
                status, method = run.status() or 0, run.method
                ended = "exited" if run.ended_by is None else _ENDED[signal.Signals(run.ended_by)]
            listening.update()
            facts, stop = read_facts(listening.records), fake_stop(listening.records)
    finally:
        gpus.close()
    if stop is not None:
        raise FakeRunError(stop)
    if settings.fake and facts.model is None and caught.received is None:
        raise BadInputError(f"the fake run of {name_of(command)} has no facts: {'; '.join(facts.notes)}")
    without_numbers = facts.steps is not None and facts.steps.device == "meta"
    name = settings.name or name_of(command)
    return Profile(
        id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(created))}-{secrets.token_hex(3)}",
        created=created,
        workload=Workload(name=name, command=tuple(command)),
        host=host,
        window=readings[-1].time,
        every=settings.every,
        method=method,
        ended=ended,
        status=status,
        # Resources that a model without numbers used say nothing about the job.
        series=Series() if without_numbers else series(readings),
        model=facts.model,
        steps=facts.steps,
        notes=(
            *(() if settings.fake else _run_notes(readings[-1], caught.received, method, ended, status)),
            *facts.notes,
        ),
    )


def profile_by_threads(
    command: Sequence[str],
    counts: Sequence[int],
    settings: ProfilerSettings,
    on_progress: Callable[[Progress], None] | None = None,
    interrupts: Interrupts | None = None,
) -> Profile:
    """Profile `command` once for each number of CPUs: the profile of most CPUs, with all runs' steps."""
    runs: dict[int, Profile] = {}
    for threads in sorted(set(counts)):
        runs[threads] = profile(command, replace(settings, threads=threads), on_progress, interrupts)
        if interrupts is not None and interrupts.received is not None:
            break
    largest = runs[max(runs)]
    if largest.steps is None:
        return largest
    timed = tuple(
        ThreadSteps(n, run.steps.seconds) for n, run in runs.items() if run.steps and run.steps.seconds
    )
    return replace(largest, steps=replace(largest.steps, by_threads=timed))


class FakeRunError(BadInputError):
    """A script with fake tensors failed; the message has the line and what to do instead."""

    def __init__(self, stop: FakeStop) -> None:
        where = f"{stop.file}:{stop.line}"
        if not stop.file:
            message = stop.error
        elif stop.needs_value:
            message = (
                f"{where} needs the value of a tensor, which a fake run does not have:"
                f" {stop.code or stop.error} ({stop.error}); move it behind the first optimizer step, skip"
                " it when the variable TRIMTAB_FAKE is set, or profile without --fake"
            )
        else:
            message = (
                f"the script failed with fake tensors at {where} ({stop.code}): {stop.error};"
                " if it runs without --fake, profile it so, or give the model itself: trimtab profile --model"
            )
        super().__init__(message)
        self.stop = stop


def model_command(spec: str, optimizer: str, inputs: Sequence[str]) -> tuple[str, ...]:
    """A command that trains the model of `spec` (MODULE:FUNCTION or a config.json) for one step."""
    code = "import sys; from trimtab_listener.single import main; main(*sys.argv[1:])"
    return (sys.executable, "-c", code, spec, optimizer, *inputs)


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
) -> list[Reading]:
    """Sample until the command has ended, the window is over, or there are enough steps; then stop it."""
    readings = [meter.read()]
    due = settings.every
    while run.status() is None and interrupts.received is None:
        elapsed = time.monotonic() - run.started
        window = settings.window or _longest(listening)
        if elapsed >= window:
            break
        if elapsed >= due:
            due = max(due + settings.every, elapsed)
            readings.append(meter.read())
            if on_progress is not None:
                before, now = readings[-2:]
                cpu = (now.cpu - before.cpu) / max(1e-9, now.time - before.time)
                steps, waits_for = listening.steps(), listening.waits_for()
                on_progress(Progress(now.time, window, cpu, now.memory, steps, waits_for))
        listening.update()
        if _has_enough(listening, settings, elapsed):
            break
        time.sleep(min(_LOOK_EVERY, max(0.0, window - elapsed), max(0.01, due - elapsed)))
    readings.append(meter.read())
    if interrupts.received is None:
        listening.announce_stop()
    run.stop()
    return readings


def _longest(listening: ListenerFolder) -> float:
    """Seconds after which a run without a window ends in any case."""
    return _LONGEST if listening.waits_for() is not None else _LONGEST_WITHOUT_PYTORCH


def _has_enough(listening: ListenerFolder, settings: ProfilerSettings, elapsed: float) -> bool:
    """Whether the run has shown all that the profile needs."""
    if settings.full:
        return False
    if not settings.fake and listening.has_trace("meta"):
        return True
    steps = listening.steps()
    if settings.steps is not None:
        return steps >= settings.steps
    if steps >= ENOUGH_STEPS and elapsed >= ENOUGH_SECONDS:
        return True
    few_but_long = steps >= FEWEST_STEPS and listening.timed_seconds() >= _TIMED_SECONDS
    return settings.window is None and few_but_long and listening.has_trace()


def _run_notes(last: Reading, received: int | None, method: str, ended: str, status: int) -> list[str]:
    lasted, notes = format_duration(last.time), list[str]()
    if method == "process-tree":
        notes.append("no control group could be made; processes were followed from parent to child")
    if received is not None:
        notes.append(f"profiling was interrupted after {lasted}")
    elif ended == "exited":
        notes.append(f"the command ended by itself after {lasted} with status {status}")
    if last.network_in or last.network_out:
        notes.append("network bytes are of all processes in the command's network namespace")
    if last.gpu is not None:
        notes.append("GPU use is of all processes on this machine's devices")
    return notes
