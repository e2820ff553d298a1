"""Exact mean cost of interruptions to a job that saves checkpoints.

Interruptions come at a constant rate λ, without notice, at any time but while an earlier one is not noticed
yet. A job does W useful seconds, saves for C, and so on. An interruption costs the work since the last save,
D seconds until it is noticed and R to restart; one during those R starts them again. With T the mean seconds
that an interval of W takes,

    T = (e^(λ(W + C)) - 1) e^(λR) (1/λ + D)

because the job renews itself at every save and every restart: it tries W + C until one try is not
interrupted. W/T is the useful share of time, and is largest where λW = 1 - e^(-λ(W + C)), for any D and R.
Young's rule W = sqrt(2C/λ) is its first order for small λC, Daly's adds the next two.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from trimtab.core import BadInputError, Estimate, format_duration

_ROUNDS = 60  # of Newton's method, which needs about six


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: to save (C), until an interruption is noticed (D), to restart (R). Numbers or arrays."""

    saving: Any
    noticing: Any
    restarting: Any


def useful_share(interval: Any, rate: Any, costs: Costs) -> Any:
    """Useful over all time, from 0 to 1; `rate` is interruptions per second."""
    import numpy as np

    useful, hazard = np.asarray(interval, dtype=float), np.asarray(rate, dtype=float)
    safe = useful / (useful + costs.saving)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tries = np.expm1(hazard * (useful + costs.saving)) * np.exp(hazard * costs.restarting)
        taken = tries * (1.0 / hazard + costs.noticing)
        return np.where(hazard > 0.0, np.where(np.isfinite(taken), useful / taken, 0.0), safe)[()]


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Shares of all time, which add up to one; `redone` is lost work and interrupted saves and restarts."""

    useful: float
    saving: float
    noticing: float
    restarting: float
    redone: float


def time_split(interval: float, rate: float, costs: Costs) -> TimeSplit:
    """Mean shares of time. Interruptions come at their rate except while one is not noticed yet."""
    share = float(useful_share(interval, rate, costs))
    taken = interval / share
    noticing = costs.noticing * rate * taken / (1.0 + rate * costs.noticing)
    restarting = costs.restarting * math.expm1(rate * (interval + costs.saving))
    redone = taken - interval - costs.saving - noticing - restarting
    return TimeSplit(
        share, costs.saving / taken, noticing / taken, restarting / taken, max(redone, 0.0) / taken
    )


def best_interval(saving: Any, rate: Any) -> Any:
    """Useful seconds between saves for the largest useful share; infinite where nothing interrupts.

    With x = λW and c = λC this is the root of x - 1 + e^(-(x + c)), which rises from below 0 at x = 0 to
    above 0 at x = 1 and bends upwards: Newton's method from x = 1 comes down to it.
    """
    import numpy as np

    hazard = np.asarray(rate, dtype=float)
    cost = hazard * np.asarray(saving, dtype=float)
    x = np.ones_like(cost)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_ROUNDS):
            value, slope = x + np.expm1(-(x + cost)), -np.expm1(-(x + cost))
            x = np.maximum(np.where(slope > 0.0, x - value / slope, x), 0.0)
        return np.where(hazard > 0.0, x / hazard, np.inf)[()]


DAY = 86_400.0
MONTH = 365.25 / 12 * DAY


@dataclass(frozen=True, slots=True)
class Assumption:
    """An input of the advice with its range and its source.

    The range is a triangular distribution with its mode at `value`, on a logarithmic scale unless it begins
    at 0.
    """

    value: float
    low: float
    high: float
    reason: str

    @classmethod
    def given(cls, value: float, low: float | None = None, high: float | None = None) -> "Assumption":
        """A number that the user gave."""
        return cls(value, value if low is None else low, value if high is None else high, "given")


@dataclass(frozen=True, slots=True)
class Failures:
    """A count of interruptions of a job: in so many seconds, on so many devices.

    The shares were due to switches and cables, and to network cards.
    """

    interruptions: float = 466.0
    seconds: float = 54 * DAY
    devices: float = 16_000.0
    network_share: float = 0.084
    card_share: float = 0.017
    reason: str = "Meta's Llama 3 report: 54 days on 16,000 GPUs"

    @property
    def at_the_edge(self) -> float:
        """Interruptions between hosts and their switches, which a second path may survive."""
        return self.interruptions * (self.network_share + self.card_share)

    @property
    def exposure(self) -> float:
        """Device-seconds of the count."""
        return self.seconds * self.devices


_MEASURED = "on five hosts in the THORN-ML paper's table 3.1"
SAVING = Assumption(0.77, 0.24, 30.0, f"0.24 to 0.77 s {_MEASURED}; larger models take longer")
NOTICING = Assumption(
    60.0, 10.0, 600.0, "between a network card's retries, about 10 s, and PyTorch's timeout for NCCL, 600 s"
)
RESTARTING = Assumption(22.0, 5.7, 300.0, f"5.7 to 22.6 s {_MEASURED}; larger clusters take longer")
STALL = Assumption(0.25, 0.05, 2.0, "detection in 30 to 150 ms, then a retransmission after 200 ms or more")
SURVIVED = Assumption(
    0.9, 0.5, 1.0, "of failures at the edge; not of both ports at once, nor of switches further up"
)
SLOWDOWN = Assumption(0.0, 0.0, 0.0, "the network card adds and removes the tunnel's header")


@dataclass(frozen=True, slots=True)
class Question:
    """A job on so many devices, its price in dollars per device-second, and the costs of failures in seconds.

    `saving` a checkpoint, `noticing` an interruption, `restarting` up to the first step; with the fabric the
    share `survived` of failures at the edge costs only a `stall`, and every step takes longer by the share
    `slowdown`. Without an `interval` (useful seconds between saves) the job takes the best one.
    """

    devices: int
    price: Assumption
    failures: Failures = field(default_factory=Failures)
    saving: Assumption = SAVING
    noticing: Assumption = NOTICING
    restarting: Assumption = RESTARTING
    stall: Assumption = STALL
    survived: Assumption = SURVIVED
    slowdown: Assumption = SLOWDOWN
    interval: float | None = None

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise BadInputError(f"devices is {self.devices}; a job needs at least 1")
        _check_failures(self.failures)
        for name in ASSUMED:
            _check(name, getattr(self, name), most=1.0 if name in ("survived", "slowdown") else math.inf)
        if self.slowdown.high >= 1.0:
            raise BadInputError("with a slowdown of 1 no step would ever end; give a share such as 0.002")
        if self.saving.low <= 0.0:
            raise BadInputError("saving is 0 s; if checkpoints take no time, save after every step")
        if self.failures.at_the_edge * self.survived.value > 0.999 * self.failures.interruptions:
            raise BadInputError(
                "every interruption would be survived, and then no checkpoint is needed; "
                "other things than the network interrupt jobs too"
            )
        between = 1.0 / self.rate
        least = self.saving.value + self.noticing.value + self.restarting.value
        if between < least:
            raise BadInputError(
                f"{self.devices} devices are interrupted every {format_duration(between)}, and saving, "
                f"noticing and restarting alone take {format_duration(least)}: such a job makes no progress; "
                "use fewer devices"
            )
        if self.interval is None:
            return
        if not self.interval > 0.0:
            raise BadInputError(f"an interval of {self.interval:g} s between checkpoints; it must be above 0")
        if self.interval > between:
            raise BadInputError(
                f"{format_duration(self.interval)} between checkpoints is longer than the "
                f"{format_duration(between)} between interruptions: most work would never be saved; "
                f"leave the interval out to use the best one"
            )

    @property
    def rate(self) -> float:
        """Interruptions per second, in proportion to the number of devices."""
        return self.failures.interruptions / self.failures.exposure * self.devices


ASSUMED = ("price", "saving", "noticing", "restarting", "stall", "survived", "slowdown")
"""The assumptions of a question."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Useful seconds between checkpoints: the one in use, the best, and those of two rules."""

    used: float
    best: Estimate
    young: float
    daly: float


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of a month: seconds between interruptions, hours of the job, dollars.

    `split` are shares of time apart from stalls and slowdown.
    """

    between: Estimate
    interval: Interval
    hours: Estimate
    dollars: Estimate
    split: TimeSplit


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Dollars saved in a month if one assumption were at the low or the high end of its range."""

    name: str
    at_low: float
    at_high: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for a month of the job.

    `interruptions` and `survived` are counts of a single month, chance included; all other ranges are of the
    mean over many. `break_even` is the slowdown of every step, as a share, that would cancel the saving.
    The `…_costs` are dollars a month, without the fabric, that another interval costs more than the best: the
    one in use, Young's, half the best and twice the best.
    """

    question: Question
    interruptions: Estimate
    survived: Estimate
    without: Losses
    with_fabric: Losses
    saved_hours: Estimate
    saved_dollars: Estimate
    break_even: Estimate
    used_costs: float
    young_costs: float
    half_costs: float
    twice_costs: float
    sensitivities: tuple[Sensitivity, ...]


def _check(name: str, assumption: Assumption, most: float) -> None:
    low, value, high = assumption.low, assumption.value, assumption.high
    if not (math.isfinite(high) and low <= value <= high):
        raise BadInputError(f"{name} is {value:g}, which is not in its range from {low:g} to {high:g}")
    if low < 0.0:
        raise BadInputError(f"{name} is {low:g}; it cannot be negative")
    if high > most:
        raise BadInputError(f"{name} is {high:g}; it is a share, from 0 to 1")


def _check_failures(failures: Failures) -> None:
    if not failures.interruptions >= 1.0 or not math.isfinite(failures.interruptions):
        raise BadInputError(
            f"{failures.interruptions:g} interruptions are too few for a rate; count at least 1"
        )
    if not (failures.exposure > 0.0 and math.isfinite(failures.exposure)) or failures.seconds < 0.0:
        raise BadInputError(
            "interruptions were counted for no time or on no devices; give a duration and a number of devices"
        )
    shares = (failures.network_share, failures.card_share)
    if min(shares) < 0.0 or not sum(shares) <= 1.0:
        raise BadInputError(
            f"shares of {shares[0]:g} for switches and cables and {shares[1]:g} for cards; "
            "both are at least 0 and together at most 1"
        )
