"""Checkpoint intervals on machines that can be lost, their cost, and the moment to leave spot nodes.

Young (1974) and Daly (2006): a gang loses its unsaved work whenever any of its nodes is lost, so saving more
often loses less and costs more. With M seconds between interruptions, C to save, R to restart and an interval
of tau useful seconds, Daly's complete model says that each interval takes M e^(R/M) (e^((tau+C)/M) - 1).
Interruptions come at a constant rate, unannounced; they may also hit a save or a restart.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trimtab.core import daly_interval
from trimtab.schedule.cluster import Floats, Market, NodeGroup
from trimtab.schedule.job import Checkpoint

NODE_LOSSES = 1.0 / (90 * 86_400)
"""Default rate per second at which a node fails by itself: once in 90 days."""


def gang_rate(nodes: ArrayLike, reclaims: ArrayLike = 0.0, losses: ArrayLike = NODE_LOSSES) -> Floats:
    """Interruptions per second of a gang: it stops with any of its nodes, so their rates add."""
    per_node: Floats = np.add(reclaims, losses, dtype=float)
    return np.multiply(nodes, per_node, dtype=float)


def efficiency(interval: ArrayLike, saving: ArrayLike, restart: ArrayLike, rate: ArrayLike) -> Floats:
    """Useful over paid time, from 0 to 1, of a long job that saves every `interval` useful seconds."""
    useful = np.asarray(interval, dtype=float)
    hazard = np.asarray(rate, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        paid = np.exp(hazard * restart) * np.expm1(hazard * (useful + saving)) / hazard
        safe = np.where(np.isinf(useful), 1.0, useful / (useful + saving))
        share = np.where(np.isinf(paid), 0.0, useful / paid)
        return np.where(hazard > 0.0, share, safe)


@dataclass(frozen=True, slots=True)
class ExpectedRun:
    """Expected seconds and dollars of a job that saves every `interval` useful seconds."""

    seconds: float
    dollars: float
    interval: float
    efficiency: float


def expected_run(
    useful: float, group: NodeGroup, nodes: int, checkpoint: Checkpoint, losses: float = NODE_LOSSES
) -> ExpectedRun:
    """A job of so many useful seconds on nodes of a group; without an interval of its own it takes Daly's.

    The first start counts. A group that is not spot is not reclaimed.
    """
    reclaims = group.reclaims if group.market is Market.SPOT else 0.0
    rate = float(gang_rate(nodes, reclaims, losses))
    interval = checkpoint.interval or float(daly_interval(checkpoint.seconds, rate))
    interval = min(interval, useful) or 1.0
    share = float(efficiency(interval, checkpoint.seconds, checkpoint.restart, rate))
    seconds = checkpoint.restart + useful / share if share else math.inf
    return ExpectedRun(seconds, seconds * nodes * group.price, interval, share)


@dataclass(frozen=True, slots=True)
class Refuge:
    """Finishing on on-demand nodes: seconds until they are provisioned, and the confidence in the deadline.

    `rate` is the rate of interruptions per second there.
    """

    provisioning: float = 120.0
    rate: float = NODE_LOSSES
    confidence: float = 0.99

    def smooth(self, useful: float, checkpoint: Checkpoint) -> float:
        """Seconds for `useful` ones without interruptions."""
        saves = useful / self._interval(useful, checkpoint) * checkpoint.seconds
        return self.provisioning + checkpoint.restart + useful + saves

    def seconds(self, useful: float, checkpoint: Checkpoint) -> float:
        """Seconds within which they are done with probability `confidence`.

        Every interruption is charged the most it can cost: an interval, a save and a restart.
        """
        smooth = self.smooth(useful, checkpoint)
        worst_cost = self._interval(useful, checkpoint) + checkpoint.seconds + checkpoint.restart
        for interruptions in range(_HOPELESS):
            seconds = smooth + interruptions * worst_cost
            if _more_than(interruptions, self.rate * seconds) <= 1.0 - self.confidence:
                return seconds
        return math.inf

    def _interval(self, useful: float, checkpoint: Checkpoint) -> float:
        interval = checkpoint.interval or float(daly_interval(checkpoint.seconds, self.rate))
        return min(interval, useful) or 1.0


def latest_switch(deadline: float, useful: float, refuge: Refuge, checkpoint: Checkpoint) -> float:
    """The last moment at which leaving spot still meets the deadline.

    `useful` are the useful seconds left on on-demand nodes since the last save, because a reclaimed job
    starts again from there: every save moves the moment.
    """
    return deadline - refuge.seconds(useful, checkpoint)


def must_leave_spot(
    now: float, next_look: float, deadline: float, useful: float, refuge: Refuge, checkpoint: Checkpoint
) -> bool:
    """Whether to leave now because at the next check, at `next_look`, it would be too late.

    A deadline that on-demand nodes cannot meet is no reason to pay for them.
    """
    if now + refuge.smooth(useful, checkpoint) > deadline:
        return False
    return latest_switch(deadline, useful, refuge, checkpoint) < next_look


_HOPELESS = 200  # interruptions on on-demand nodes, beyond which no deadline can be kept


def _more_than(count: int, mean: float) -> float:
    """The probability that a Poisson variable of this mean exceeds `count`."""
    term = total = math.exp(-mean)
    for k in range(1, count + 1):
        term *= mean / k
        total += term
    return max(0.0, 1.0 - total)
