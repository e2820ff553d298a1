"""Short runs of a job on this machine, without limits."""

import math
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from trimtab.collect.shapes.spec import Spec, TrainingGang, TrainingJob
from trimtab.collect.shapes.workers import TrainingWorkers, WorkerEndedError, started, steps_within
from trimtab.observe import ListenerFacts, ListenerFolder, read_facts, usable_cpus

_WARM_UP = 6  # steps, among them the one that the listener traces
_EVERY = 0.25  # s between two samples
_MOST_WORKERS = 2


@dataclass(frozen=True, slots=True)
class LocalSeries:
    """Samples of one worker, `every` seconds: cores, bytes, bytes per second in and out."""

    every: float
    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    received: tuple[float, ...]
    sent: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LocalRun:
    """One short run with a batch per worker. CPU seconds and bytes are per worker."""

    batch: int
    workers: int
    step_seconds: float
    cpu_seconds_step: float
    memory_peak_bytes: float
    bytes_step: float
    steps: int
    series: LocalSeries


@dataclass(frozen=True, slots=True)
class LocalRuns:
    """All short runs of a job, and the facts of its model."""

    facts: dict[str, Any]
    runs: tuple[LocalRun, ...]

    def plain(self) -> dict[str, Any]:
        """Plain data of the file."""
        return {"facts": self.facts, "runs": [asdict(run) for run in self.runs]}


def run_locally(job: TrainingJob, spec: Spec) -> LocalRuns:
    """Every batch size with one worker, and with two where there are two CPUs."""
    runs = list[LocalRun]()
    most = min(_MOST_WORKERS, int(usable_cpus()))
    with ListenerFolder() as listening:
        for workers in range(1, most + 1):
            for batch in job.batches:
                listened = workers == 1 and batch == job.batches[len(job.batches) // 2]
                variables = listening.variables() if listened else None
                with started(TrainingGang(job, batch, workers), variables=variables) as running:
                    runs.append(_run(running, batch, spec))
        listening.update()
        facts = read_facts(listening.records)
    return LocalRuns(_facts(job, facts), tuple(runs))


def _run(workers: TrainingWorkers, batch: int, spec: Spec) -> LocalRun:
    if not steps_within(workers, _WARM_UP, spec.patience):
        raise WorkerEndedError(
            f"no step was printed within {spec.patience:g} s; a script prints "
            '"step 1 loss 0.5 time 1731712345.123" after each'
        )
    first = len(workers.lines.steps) - 1
    samples = [_sample(workers)]
    begin = time.monotonic()
    while time.monotonic() - begin < spec.window or len(workers.lines.steps) - 1 <= first:
        due = begin + len(samples) * _EVERY
        while (left := due - time.monotonic()) > 0:
            workers.listen(left)
        workers.listen(0.0)
        samples.append(_sample(workers))
        if time.monotonic() - begin > spec.window + spec.patience:
            raise WorkerEndedError(f"it printed no step within {spec.patience:g} s")
    steps = workers.lines.steps[first:]
    count = len(steps) - 1
    seconds = steps[-1].time - steps[0].time
    sampled = samples[-1].time - samples[0].time
    per_step = seconds / sampled / count / len(workers)
    return LocalRun(
        batch,
        len(workers),
        seconds / count,
        (samples[-1].cpu - samples[0].cpu) * per_step,
        max(sample.memory for sample in samples),
        (samples[-1].sent - samples[0].sent) * per_step,
        count,
        _series(samples, len(workers)),
    )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Totals of all workers (CPU seconds, bytes), and bytes of memory of the largest."""

    time: float
    cpu: float
    memory: float
    sent: float


def _sample(workers: TrainingWorkers) -> _Sample:
    return _Sample(time.monotonic(), workers.cpu_seconds(), workers.memory(), workers.bytes_sent())


def _series(samples: list[_Sample], workers: int) -> LocalSeries:
    """Rates between samples. Workers only talk to each other, so bytes received equal bytes sent."""
    pairs = list(pairwise(samples))
    sent = tuple(round((b.sent - a.sent) / (b.time - a.time) / workers) for a, b in pairs)
    return LocalSeries(
        _EVERY,
        tuple(round((b.cpu - a.cpu) / (b.time - a.time) / workers, 4) for a, b in pairs),
        tuple(round(after.memory) for _, after in pairs),
        sent,
        sent,
    )


def _facts(job: TrainingJob, facts: ListenerFacts) -> dict[str, Any]:
    model = facts.model
    about = {"epochs": job.epochs, "dataset_samples": job.samples, "learning_rate": facts.learning_rate}
    if model is None:
        return about
    kinds: dict[str, int] = {}
    for layer in model.layers:
        kinds[layer.type] = kinds.get(layer.type, 0) + 1
    return about | {
        "parameters": model.parameters,
        "layers": len(model.layers),
        "layer_kinds": kinds,
        "optimizer": model.optimizer,
        "input_size": math.prod(model.input_shape),
        "output_size": math.prod(model.output_shape),
        "flop_per_sample": model.step_flop_per_sample,
    }
