"""The rule: CPU seconds of a step, by the local run, over what the machine gives. Nothing is learned."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.local_runs import LocalJob, LocalRun
from trimtab.predict.jobs.training.table import Configurations


def ring_share(workers: ArrayLike) -> Array:
    """Gradients a worker sends in a ring all-reduce, as a part of all: 0 alone, 1 of two, 1.5 of four."""
    count = np.asarray(workers, dtype=float)
    return np.asarray(2 * (count - 1) / count)


@dataclass(frozen=True, slots=True)
class Line:
    """A quantity of one worker: fixed + sample · batch + exchange · (gradients sent)."""

    fixed: float
    sample: float
    exchange: float

    @classmethod
    def through(cls, runs: Sequence[LocalRun], quantity: str) -> "Line":
        """The least relative squares through the runs; no part is negative."""
        from scipy.optimize import nnls

        batch = np.array([run.batch for run in runs])
        share = ring_share([run.workers for run in runs])
        values = np.array([getattr(run, quantity) for run in runs])
        columns = np.stack([np.ones(len(runs)), batch, share], axis=1) / values[:, None]
        size = np.linalg.norm(columns, axis=0)
        found, _ = nnls(columns / np.where(size > 0, size, 1.0), np.ones(len(runs)))
        return cls(*(found / np.where(size > 0, size, 1.0)).tolist())

    def at(self, batch: Array, workers: Array) -> Array:
        return np.asarray(self.fixed + self.sample * batch + self.exchange * ring_share(workers))


@dataclass(frozen=True, slots=True)
class Rule:
    """Lines through a job's local runs: CPU seconds, seconds without limits, and bytes, of a step."""

    cpu: Line
    unlimited: Line
    memory: Line
    gradient_bytes: float  # that a worker of two sends in a step

    @classmethod
    def of(cls, job: LocalJob) -> "Rule":
        if len({run.batch for run in job.runs}) < 2 and len(job.runs) < 2:
            raise BadInputError(
                f"{job.name}: one local run cannot tell what a sample takes from what a step takes; "
                "run it with two batch sizes at least"
            )
        sent = [run.bytes_step / ring_share(run.workers) for run in job.runs if run.workers > 1]
        return cls(
            Line.through(job.runs, "cpu_seconds_step"),
            Line.through(job.runs, "step_seconds"),
            Line.through(job.runs, "memory_peak_bytes"),
            float(np.mean(sent)) if sent else 0.0,
        )

    def cpu_seconds(self, where: Configurations) -> Array:
        """CPU seconds of a step, of one worker."""
        return self.cpu.at(where.batch, where.workers)

    def step_seconds(self, where: Configurations) -> Array:
        """The CPU seconds spread over the quota; never less than a step takes without limits."""
        free = self.unlimited.at(where.batch, where.workers)
        return np.maximum(self.cpu_seconds(where) / where.cpus, free)

    def memory_bytes(self, where: Configurations) -> Array:
        """The peak of one worker."""
        return self.memory.at(where.batch, where.workers)

    def fits(self, where: Configurations) -> Array:
        """1 where the peak is within the machine's memory, else 0."""
        return np.asarray(self.memory_bytes(where) <= where.memory_bytes, dtype=float)
