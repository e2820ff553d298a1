"""What interruptions cost a job that saves its work now and then: exactly, in the mean.

Interruptions come at a constant rate λ, without notice, and may hit anything but the time until the last one
is noticed. A job does W useful seconds, saves for C, and so on. An interruption costs what was done since the
last save, D seconds until somebody notices and R to start again; one during those R starts them again. With
T the seconds that an interval of W takes in the mean,

    T = (e^(λ(W + C)) - 1) e^(λR) (1/λ + D)

because the job renews itself at every save and every restart: it tries W + C until one try is not hit. W/T is
the share of time that is useful, and is largest where λW = 1 - e^(-λ(W + C)), whatever D and R are. Young's
rule W = sqrt(2C/λ) is its first order for small λC, Daly's adds the next two.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from trimtab.core import BadInputError, Estimate, format_duration

_ROUNDS = 60  # of Newton's method, which needs about six


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: to save (C), until an interruption is noticed (D), to start again (R). Numbers or columns."""

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
    """Shares of all time, which add up to one.

    `redone` is work that was lost, with saves and restarts that were broken off.
    """

    useful: float
    saving: float
    noticing: float
    restarting: float
    redone: float


def time_split(interval: float, rate: float, costs: Costs) -> TimeSplit:
    """Where the time goes, in the mean. Interruptions come at their rate but for what is spent noticing."""
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
    """A number that goes into the advice, the range it should be in, and where it comes from.

    Values in the range are the likelier the nearer to `value`: a triangle, on a logarithmic scale where the
    range does not begin at 0.
    """

    value: float
    low: float
    high: float
    reason: str

    @classmethod
    def given(cls, value: float, low: float | None = None, high: float | None = None) -> "Assumption":
        """A number that the user stands for."""
        return cls(value, value if low is None else low, value if high is None else high, "given")


@dataclass(frozen=True, slots=True)
class Failures:
    """What was counted: interruptions in so many seconds of a job on so many devices.

    Shares of them were due to switches and cables, and to network cards.
    """

    interruptions: float = 466.0
    seconds: float = 54 * DAY
    devices: float = 16_000.0
    network_share: float = 0.084
    card_share: float = 0.017
    reason: str = "Meta's Llama 3 report: 54 days on 16,000 GPUs"

    @property
    def at_the_edge(self) -> float:
        """Interruptions between hosts and their switches, which a second path might have survived."""
        return self.interruptions * (self.network_share + self.card_share)

    @property
    def exposure(self) -> float:
        """Device-seconds that were looked at."""
        return self.seconds * self.devices


SAVING = Assumption(
    0.77,
    0.24,
    30.0,
    "0.24 to 0.77 s on five hosts in the THORN-ML paper's table 3.1; larger models take longer",
)
NOTICING = Assumption(
    60.0,
    10.0,
    600.0,
    "between a network card's retries, about 10 s, and PyTorch's timeout for NCCL, 600 s",
)
RESTARTING = Assumption(
    22.0,
    5.7,
    300.0,
    "5.7 to 22.6 s on five hosts in the THORN-ML paper's table 3.1; larger clusters take longer",
)
STALL = Assumption(0.25, 0.05, 2.0, "detection in 30 to 150 ms, then a retransmission after 200 ms or more")
SURVIVED = Assumption(
    0.9, 0.5, 1.0, "of failures at the edge; not those of both ports at once, nor of switches further up"
)
SLOWDOWN = Assumption(0.0, 0.0, 0.0, "the network card adds and removes the tunnel's header")


@dataclass(frozen=True, slots=True)
class Question:
    """A job on so many devices, dollars per device-second, and what its failures cost in seconds.

    `saving` a checkpoint, `noticing` an interruption, `restarting` up to the first step; with the fabric a
    failure at the edge is `survived` in that share of cases at the cost of a `stall`, and every step takes
    longer by the share `slowdown`. Without an `interval` of its own (useful seconds between saves) the job
    takes the best one.
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
            raise BadInputError(f"a job on {self.devices} devices; it takes at least 1")
        _check_failures(self.failures)
        for name in ASSUMED:
            _check(name, getattr(self, name), most=1.0 if name in ("survived", "slowdown") else math.inf)
        if self.slowdown.high >= 1.0:
            raise BadInputError("with a slowdown of 1 no step would ever end; it is a share such as 0.002")
        if self.saving.low <= 0.0:
            raise BadInputError("saving a checkpoint takes no time; then save after every step")
        if self.failures.at_the_edge * self.survived.value > 0.999 * self.failures.interruptions:
            raise BadInputError(
                "every interruption would be survived, and then no checkpoint is needed; "
                "other things than the network interrupt jobs too"
            )
        self._check_sense()

    @property
    def rate(self) -> float:
        """Interruptions per second: each device brings its share of them."""
        return self.failures.interruptions / self.failures.exposure * self.devices

    def _check_sense(self) -> None:
        between = 1.0 / self.rate
        least = self.saving.value + self.noticing.value + self.restarting.value
        if between < least:
            raise BadInputError(
                f"{self.devices} devices are interrupted every {format_duration(between)}, and saving, "
                f"noticing and restarting alone take {format_duration(least)}: such a job gets nowhere; "
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
                f"leave the interval out to be told the best one"
            )


ASSUMED = ("price", "saving", "noticing", "restarting", "stall", "survived", "slowdown")
"""The assumptions of a question."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Useful seconds between checkpoints: what is used, the best, and what two rules say."""

    used: float
    best: Estimate
    young: float
    daly: float


@dataclass(frozen=True, slots=True)
class Losses:
    """What a month costs: seconds between interruptions, hours of the whole job, dollars.

    `split` says where the time of an hour goes that no stall and no slowdown touches.
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
    """The answer, for a month of the job.

    `interruptions` and `survived` are counts of a single month, chance included; all other ranges are about
    the mean over many. `break_even` is the slowdown of every step, as a share, that would eat up the saving.
    Dollars a month, without the fabric, that other intervals cost more than the best: `used_costs` is
    about the one in use, `young_costs` about Young's, `half_costs` and `twice_costs` about half and twice it.
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
    """In order, and no negative cost."""
    low, value, high = assumption.low, assumption.value, assumption.high
    if not (math.isfinite(high) and low <= value <= high):
        raise BadInputError(f"{name}: {value:g} is not between {low:g} and {high:g}, its own range")
    if low < 0.0:
        raise BadInputError(f"{name} is {low:g}; it cannot be negative")
    if high > most:
        raise BadInputError(f"{name} is {high:g}; it is a share, from 0 to 1")


def _check_failures(failures: Failures) -> None:
    if not failures.interruptions >= 1.0 or not math.isfinite(failures.interruptions):
        raise BadInputError(
            f"{failures.interruptions:g} interruptions do not say how often they come; count for longer"
        )
    if not (failures.exposure > 0.0 and math.isfinite(failures.exposure)) or failures.seconds < 0.0:
        raise BadInputError(
            "interruptions were counted for no time or on no devices; say how long, on how many"
        )
    shares = (failures.network_share, failures.card_share)
    if min(shares) < 0.0 or not sum(shares) <= 1.0:
        raise BadInputError(
            f"shares of {shares[0]:g} for switches and cables and {shares[1]:g} for cards; "
            "both are at least 0 and together at most 1"
        )
