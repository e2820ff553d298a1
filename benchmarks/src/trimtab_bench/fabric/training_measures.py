"""From steps and faults to numbers: how much longer, how long a stall, how far apart in loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from trimtab.collect.shapes import Step
from trimtab_bench.fabric.gloo_jobs.run import Restarted, Run, loss_difference

AVERAGED = 10
"""Iterations that make one of those whose 90th percentile is compared, as in seed 002, figure 3.6."""
_AFTER = 2.0  # s after the begin of a fault, in which it may be felt


@dataclass(frozen=True, slots=True)
class Trained:
    """A job that ran, and when faults began meanwhile, in seconds since the epoch."""

    run: Run | Restarted
    faults: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """From the begin of the first step to the end of the last one that was made."""
        first = self.run.runs[0] if isinstance(self.run, Restarted) else self.run
        begin = first.begun if first.ready is None else first.ready
        return self.run.steps[-1].time - begin if self.run.steps else math.inf

    @property
    def seconds_per_step(self) -> float:
        """Of steps that count: one that was made again counts once."""
        return self.seconds / len(self.run.steps) if self.run.steps else math.inf

    @property
    def stalls(self) -> tuple[float, ...]:
        """By how much the longest step after each fault was longer than steps mostly are, in seconds."""
        steps = self.run.steps
        if len(steps) < 2:
            return ()
        usual = median(_lengths(steps))
        felt = [fault for fault in self.faults if steps[0].time <= fault < steps[-1].time]
        return tuple(_longest_after(steps, fault) - usual for fault in felt)

    def at(self, faults: Sequence[float], begun: float) -> "Trained":
        """The same run with another's faults at the same time after its first step: what no fault does."""
        shift = self.run.steps[0].time - begun if self.run.steps else 0.0
        return Trained(self.run, tuple(fault + shift for fault in faults))


def slowdown(with_faults: Trained, without: Trained) -> float:
    """How many times as long, for as many steps; without end where the job failed."""
    if with_faults.run.failure or without.run.failure:
        return math.inf
    return with_faults.seconds_per_step / without.seconds_per_step


def p90_ratio(with_faults: Trained, without: Trained) -> float:
    """The 90th percentile of an iteration's time, each the mean of ten, to that without faults.

    Without end where the job failed: it may have died before it felt a fault.
    """
    if with_faults.run.failure or without.run.failure:
        return math.inf
    return _p90(_averages(with_faults.run.steps)) / _p90(_averages(without.run.steps))


def compared(pairs: Sequence[tuple[Trained, Trained]]) -> dict[str, Any]:
    """Pairs of the same job with and without faults."""
    one, other = pairs[0]
    return {
        "ratios": [slowdown(faulty, calm) for faulty, calm in pairs],
        "p90_ratios": [p90_ratio(faulty, calm) for faulty, calm in pairs],
        "loss_difference": max(loss_difference(one.run, each.run) for pair in pairs for each in pair),
        "final_loss": other.run.steps[-1].loss,
        "crashes": [each.run.failure for pair in pairs for each in pair if each.run.failure],
        "faults": sum(len(faulty.faults) for faulty, _ in pairs),
        "stalls_s": [stall for faulty, _ in pairs for stall in faulty.stalls],
        "calm_stalls_s": [
            stall
            for faulty, calm in pairs
            for stall in calm.at(faulty.faults, faulty.run.steps[0].time).stalls
        ],
        "steps": len(other.run.steps),
        "seconds": [[faulty.seconds, calm.seconds] for faulty, calm in pairs],
        "step_s": median(_lengths(other.run.steps)),
    }


def _longest_after(steps: Sequence[Step], fault: float) -> float:
    felt = [
        after.time - before.time
        for before, after in pairwise(steps)
        if after.time > fault and before.time < fault + _AFTER
    ]
    return max(felt)


def _lengths(steps: Sequence[Step]) -> list[float]:
    return [after.time - before.time for before, after in pairwise(steps)]


def _averages(steps: Sequence[Step]) -> list[float]:
    lengths = _lengths(steps)
    return [fmean(lengths[first : first + AVERAGED]) for first in range(0, len(lengths), AVERAGED)]


def _p90(values: Sequence[float]) -> float:
    import numpy as np

    return float(np.quantile(values, 0.9))
