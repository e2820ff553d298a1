"""Learned corrections beside the analytic rule, and which of the two answers.

For time the model is what earlier outcomes of the workload say. The logarithm of truth over rule is one part
that all of a workload's configurations share, a part that fades with the distance between batch sizes, one of
the number format, one of the device and one of the configuration alone; how large each is was measured
(`Spread`). Given some runs, the rest follows by conditioning a Gaussian. Runs are not all what they seem: one
may have been stopped half-way or be another job, and a workload may do more than its steps. So the answer is
an average over what may be true, weighted by how well it explains the runs. A ratio of 1000 is explained by
no kind of workload, so it counts for nothing; two runs that agree support one another.

For memory the model is what similar models were off by. The logarithm of measured over estimated peak is
smooth in what the memory is made of, so a Gaussian process over those shares and sizes carries over from one
model to similar ones; far from all of them it leaves the rule as it is. Only as many points as carry the
correction are kept.

The rule answers for time where there are no outcomes, none is believable, the rule won the backtest, or the
model's range is too wide; for memory, for a step that is further from all measured models than any left-out
model was, and on hosts, whose need was seen in the local run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import find_accelerator
from trimtab.core import BadInputError, Profile
from trimtab.predict.cost.constants import calibration, reference
from trimtab.predict.cost.demand import is_half
from trimtab.predict.cost.estimator import (
    AnalyticEstimator,
    Placements,
    ScaleOutAssumptions,
    StepEstimates,
    kinds,
)
from trimtab.predict.cost.step_memory import MemoryNeed, memory_need
from trimtab.predict.gaussian_process import condition
from trimtab.predict.guard import (
    MODEL,
    RULE,
    Ground,
    Verdict,
    judge,
    lost_backtest,
    out_of_distribution,
    too_wide,
)

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_FEATURES = 9

# Two runs of the same configuration differ by about this much, as a log ratio: a choice, on the wide side.
_RUN_NOISE = 0.1
# No measurement says these; they only matter for runs that the measured spread does not explain.
_STOPPED_EARLY = 0.05  # chance that a run ended at any point before its end
_ANOTHER_JOB = 0.05  # chance that it has nothing to do with the estimate
_ANOTHER_JOB_SPAN = math.log(1e6)  # whose ratio lies anywhere between 1/1000 and 1000
_SLOW_WORKLOAD = 0.05  # chance that a workload does more than its steps: checkpoints, evaluation, a slow disk
_SLOWER_BY = math.log(2.0)  # by how much then, and how much that varies
# However often it is seen, a ratio beyond these is of another job, or of the same at another length.
_POSSIBLE = (math.log(0.1), math.log(20.0))
# A run counts as this workload's when that is three times as likely as not.
BELIEVED = 0.75
MOST_RUNS = 5
_NEXT_TO_IMPOSSIBLE = 1e-5  # relative to the likeliest explanation


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a step runs. `width` is how wide the rule's range is there; 1 on measured devices."""

    device: str
    devices: float
    batch: float
    half: bool
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of the workload: its time over the rule's.

    `noise` is the standard deviation of that ratio's log, beside what any two runs differ by.
    """

    setting: Setting
    ratio: float
    noise: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of log(truth / rule) on one device over models that the rule had not seen.

    `total` is all of it; of that, `configuration` is not shared with any other configuration of the model,
    `number_format` not with those of another number format, and `doubling` more is lost for every factor of
    two between batch sizes. `margin` times the standard deviation holds 90 % of left-out models' steps.
    """

    total: float
    configuration: float
    number_format: float
    doubling: float
    margin: float = 1.645


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Log of truth over rule at every target, its standard deviation, and how far each run is believed."""

    mean: Array
    deviation: Array
    belief: Array


def hindsight(spread: Spread, runs: Sequence[PastRun], targets: Sequence[Setting]) -> Hindsight:
    """Condition on runs, at most `MOST_RUNS` of them, and predict the targets."""
    seen = tuple(runs)
    settings = [run.setting for run in seen]
    ratios = np.log([run.ratio for run in seen])
    among = _covariance(spread, settings, settings) + np.diag([run.noise**2 + _RUN_NOISE**2 for run in seen])
    across = _covariance(spread, targets, settings)
    alone = spread.total * np.array([target.width for target in targets]) ** 2
    mean, square = np.zeros(len(targets)), np.zeros(len(targets))
    belief = np.zeros(len(seen))
    for weight, which, shift, extra in _weighed(ratios, among):
        given = condition(among[np.ix_(which, which)] + extra, ratios[which] - shift)
        cross = across[:, which] + extra
        answer = shift + given.mean(cross)
        mean += weight * answer
        square += weight * (answer**2 + given.variance(alone + extra, cross))
        belief += weight * which
    return Hindsight(mean, np.sqrt(np.maximum(square - mean**2, 0.0)), belief)


def _covariance(spread: Spread, some: Sequence[Setting], others: Sequence[Setting]) -> Array:
    a, b = _columns(some), _columns(others)
    apart = np.abs(a.doublings[:, None] - b.doublings[None])
    same_format = a.half[:, None] == b.half[None]
    same_device = (a.device[:, None] == b.device[None]) & (a.devices[:, None] == b.devices[None])
    shared = spread.total - spread.configuration - spread.number_format
    alike = (
        np.maximum(shared - spread.doubling * apart, 0.0)
        + spread.number_format * same_format
        + spread.configuration * (same_format & same_device & (apart == 0))
    )
    own = spread.total * same_device * np.outer(a.own, b.own)
    return np.asarray(alike * np.outer(a.common, b.common) + own)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Settings as columns; `common` and `own`: width of what all devices share, and of the device's part."""

    device: NDArray[np.str_]
    devices: Array
    doublings: Array
    half: NDArray[np.bool_]
    common: Array
    own: Array


def _columns(settings: Sequence[Setting]) -> _Columns:
    width = np.array([s.width for s in settings], dtype=float)
    return _Columns(
        np.array([s.device for s in settings], dtype=str),
        np.array([s.devices for s in settings], dtype=float),
        np.log2(np.array([s.batch for s in settings], dtype=float)),
        np.array([s.half for s in settings], dtype=np.bool_),
        np.minimum(width, 1.0),
        np.sqrt(np.maximum(width**2 - 1.0, 0.0)),
    )


def _weighed(ratios: Array, among: Array) -> list[tuple[float, NDArray[np.bool_], float, float]]:
    """Explanations of the runs with their probabilities, likeliest first, without the next to impossible."""
    impossible = (ratios < _POSSIBLE[0]) | (ratios > _POSSIBLE[1])
    found = []
    for which, shift, extra, prior in _explanations(len(ratios)):
        if (which & impossible).any():
            continue
        off = ratios[which] - shift
        density = (
            float(condition(among[np.ix_(which, which)] + extra, off).log_likelihood) if off.size else 0.0
        )
        found.append((prior + density + _spoiled(ratios[~which]), which, shift, extra))
    found.sort(key=lambda each: -each[0])
    weights = np.exp(np.array([each[0] for each in found]) - found[0][0])
    weights[weights < _NEXT_TO_IMPOSSIBLE] = 0.0
    weights /= weights.sum()
    return [(float(w), *each[1:]) for w, each in zip(weights, found, strict=True) if w]


def _explanations(runs: int) -> Iterator[tuple[NDArray[np.bool_], float, float, float]]:
    """Which runs are genuine; by how much the workload is slower, that part's variance; log of the odds."""
    genuine = math.log(1.0 - _STOPPED_EARLY - _ANOTHER_JOB)  # of a spoiled run, `_spoiled` knows the chances
    for which in product((True, False), repeat=runs):
        chosen = np.array(which, dtype=np.bool_)
        prior = genuine * int(chosen.sum())
        yield chosen, 0.0, 0.0, prior + math.log(1.0 - _SLOW_WORKLOAD)
        yield chosen, _SLOWER_BY, _SLOWER_BY**2, prior + math.log(_SLOW_WORKLOAD)


def _spoiled(ratios: Array) -> float:
    """Log density of runs that are not what they seem: stopped early, or of another job."""
    stopped = _STOPPED_EARLY * np.exp(np.minimum(ratios, 0.0)) * (ratios < 0)
    another = np.full_like(ratios, _ANOTHER_JOB / _ANOTHER_JOB_SPAN)
    return float(np.log(stopped + another).sum())


@dataclass(frozen=True, slots=True, eq=False)
class MemoryCorrection:
    """Points in the space of features with their weights; `farthest` is how far a left-out model was."""

    center: Array
    scale: Array
    points: Array
    weights: Array
    farthest: float

    def factor(self, need: MemoryNeed, rule: Array) -> tuple[Array, Array]:
        """By what to multiply the rule's peaks, and how unlike the points each step is.

        The latter is the distance to the nearest, in standard deviations per feature.
        """
        place = (memory_features(need, rule) - self.center) / self.scale
        squared = squared_distance(place, self.points)
        return np.asarray(np.exp(np.exp(-0.5 * squared) @ self.weights)), np.sqrt(squared.min(axis=1))


def memory_features(need: MemoryNeed, rule: Array) -> Array:
    """Features of the memory need, one row per step; `rule` are the estimated peaks."""
    columns = (
        need.resident / rule,
        need.saved / rule,
        need.output / rule,
        need.conv_share,
        np.log1p(need.products),
        np.log(rule),
        need.half,
        need.training,
        np.log1p(need.mean_result),
    )
    return np.stack([np.broadcast_to(np.asarray(c, dtype=float), rule.shape) for c in columns], axis=1)


def similarity(some: Array, others: Array) -> Array:
    """One where two places are the same, falling over one standard deviation per feature."""
    return np.asarray(np.exp(-0.5 * squared_distance(some, others)))


def squared_distance(some: Array, others: Array) -> Array:
    """Mean over the features."""
    total = (some**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2.0 * some @ others.T
    return np.asarray(np.maximum(total, 0.0) / some.shape[1])


@dataclass(frozen=True, slots=True)
class CorrectionBacktest:
    """Mean absolute percentage errors on models left out, as shares; `time[k]` with k earlier outcomes.

    `memory_error` is truth over corrected peak, (5 %, 95 %), every model counting the same.
    """

    time_rule: float
    time: Mapping[int, float]
    memory_rule: float
    memory: float
    memory_error: tuple[float, float]

    def time_with(self, outcomes: int) -> float:
        """The error with that many outcomes; where they were not tested, with the nearest number below."""
        return self.time[max(k for k in self.time if k <= max(outcomes, min(self.time)))]


@dataclass(frozen=True, slots=True)
class Corrections:
    """Everything that is learned beside the rule."""

    models: int
    spread: Spread
    memory: MemoryCorrection
    backtest: CorrectionBacktest


def parse_corrections(data: Mapping[str, Any], where: str) -> Corrections:
    """Corrections from the catalog's entry of a device."""
    try:
        test = dict(data["backtest"])
        spread = Spread(**{name: float(v) for name, v in data["spread"].items()})
        if not (0 < spread.total < np.inf and all(v >= 0 for v in asdict(spread).values())):
            raise ValueError("a variance is not above zero")
        low, high = test["memory_error"]
        return Corrections(
            int(data["models"]),
            spread,
            parse_correction(data["memory"]),
            CorrectionBacktest(
                float(test["time_rule"]),
                {int(k): float(error) for k, error in test["time"].items()},
                float(test["memory_rule"]),
                float(test["memory"]),
                (float(low), float(high)),
            ),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"the corrections of {where} are not this version's: {error}") from None


@cache
def shipped_corrections() -> Corrections | None:
    """Corrections of the reference device; None if only constants come with it."""
    device = reference()
    entry = device.constants.get("corrections")
    return None if entry is None else parse_corrections(entry, device.name)


def parse_correction(data: Mapping[str, Any]) -> MemoryCorrection:
    """A memory correction from plain data; raises ValueError, KeyError or TypeError if it is none."""
    center, scale, points, weights = arrays = tuple(
        np.array(data[name], dtype=float) for name in ("center", "scale", "points", "weights")
    )
    if points.shape != (weights.size, center.size) or not scale.shape == center.shape == (_FEATURES,):
        raise ValueError("the points of the memory correction do not match its weights")
    if not all(np.isfinite(a).all() for a in arrays) or not (scale > 0).all():
        raise ValueError("the memory correction holds something that is not a number")
    return MemoryCorrection(center, scale, points, weights, float(data["farthest"]))


_SECONDS = ("total", "launch", "compute", "traffic", "update", "network", "input")
# Closer to one than this, an outcome is said to be as the rule said.
_AS_SAID = 1.02


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Outcome of an earlier decision: its time over the rule's, and how uncertain that ratio's log is.

    `accelerator` is None for a run on CPUs; `devices` are all that took part, `batch` samples on each.
    """

    accelerator: str | None
    devices: float
    batch: float
    precision: str
    ratio: float
    noise: float


@dataclass(frozen=True, slots=True, eq=False)
class GuardedEstimates:
    """Both answers and the chosen one, as columns; where the model has no answer it repeats the rule.

    `time` and `memory` say who answers for them, `has_time` and `has_memory` where the model has an answer.
    """

    rule: StepEstimates
    model: StepEstimates
    chosen: StepEstimates
    time: Verdict
    memory: Verdict
    has_time: Flags
    has_memory: Flags


class GuardedEstimator:
    """Rule and model side by side for one profile and what is known of its earlier runs."""

    name = "corrected"

    def __init__(
        self,
        profile: Profile,
        precision: str | None = None,
        earlier: Sequence[EarlierRun] = (),
        assume: ScaleOutAssumptions | None = None,
    ) -> None:
        self.rule = AnalyticEstimator(profile, precision, assume)
        self._learned = shipped_corrections()
        self._runs = self._past_runs(earlier)

    def estimate(self, where: Placements) -> GuardedEstimates:
        """Step time and memory at every placement."""
        rule = self.rule.estimate(where)
        if self._learned is None:
            none = judge([Ground(RULE, "nothing was learned beside it")], len(where.device))
            nowhere = np.zeros(len(where.device), dtype=np.bool_)
            return GuardedEstimates(rule, rule, rule, none, none, nowhere, nowhere)
        first, kind = kinds(where.device, where.per_node * where.nodes, where.batch)
        corrected, time, has_time = self._time(self._learned, rule, where, first, kind)
        model, memory, has_memory = self._memory(self._learned, corrected, where, first, kind)
        chosen = _where(time.by_model, model, rule, (*_SECONDS, "low", "high"))
        chosen = _where(memory.by_model, model, chosen, ("memory", "memory_high"))
        return GuardedEstimates(rule, model, chosen, time, memory, has_time, has_memory)

    def _past_runs(self, earlier: Sequence[EarlierRun]) -> dict[bool, list[PastRun]]:
        """Earlier runs on accelerators (True) and on CPUs: neither says anything about the other."""
        runs: dict[bool, list[PastRun]] = {True: [], False: []}
        known = [run for run in earlier if run.accelerator is None or find_accelerator(run.accelerator)]
        if not known:
            return runs
        names = tuple(dict.fromkeys(run.accelerator for run in known if run.accelerator))
        one = np.ones(len(known))
        ranges = self.rule.estimate(
            Placements(
                names,
                np.array([names.index(run.accelerator) if run.accelerator else -1 for run in known]),
                per_node=one,
                nodes=one,
                cores=one,
                memory=one,
                network=1e9 * one,
                batch=np.array([run.batch for run in known]),
            )
        )
        for run, width, usable in zip(known, _width(ranges.low, ranges.high), ranges.known, strict=True):
            if usable:
                setting = Setting(
                    _device(run.accelerator), run.devices, run.batch, is_half(run.precision), float(width)
                )
                runs[run.accelerator is not None].append(PastRun(setting, run.ratio, run.noise))
        return {on_accelerator: found[-MOST_RUNS:] for on_accelerator, found in runs.items()}

    def _time(
        self,
        learned: Corrections,
        rule: StepEstimates,
        where: Placements,
        first: NDArray[np.intp],
        kind: NDArray[np.intp],
    ) -> tuple[StepEstimates, Verdict, Flags]:
        """The rule's columns with times by the outcomes, who answers, and where there are any outcomes."""
        accelerated = where.device[first] >= 0
        factor, low, high = np.ones(len(first)), rule.low[first], rule.high[first]
        known = np.zeros(len(first), dtype=np.bool_)
        grounds = []
        for on_accelerator, runs in self._runs.items():
            here = accelerated == on_accelerator
            if not runs or not here.any():
                reason = _without_runs(self._runs[not on_accelerator], on_accelerator)
                grounds.append(Ground(RULE, reason, here))
                continue
            found = hindsight(learned.spread, runs, self._settings(rule, where, first[here]))
            factor[here] = np.exp(found.mean)
            high[here] = np.exp(learned.spread.margin * found.deviation)
            low[here] = 1.0 / high[here]
            known |= here
            trusted, reason = _judged(learned, runs, found)
            grounds.append(Ground(MODEL if trusted else RULE, reason, here))
        verdict = judge([_too_wide(known, high / low), *grounds], len(first))
        scale = factor[kind]
        scaled = {name: getattr(rule, name) * scale for name in _SECONDS} if known.any() else {}
        return replace(rule, low=low[kind], high=high[kind], **scaled), verdict.at(kind), known[kind]

    def _settings(self, rule: StepEstimates, where: Placements, rows: NDArray[np.intp]) -> list[Setting]:
        half = is_half(self.rule.precision)
        names = (*where.devices, None)
        width = _width(rule.low[rows], rule.high[rows])
        return [
            Setting(
                _device(names[where.device[row]]),
                float(where.per_node[row] * where.nodes[row]),
                float(where.batch[row]),
                half,
                float(w),
            )
            for row, w in zip(rows, width, strict=True)
        ]

    def _memory(
        self,
        learned: Corrections,
        rule: StepEstimates,
        where: Placements,
        first: NDArray[np.intp],
        kind: NDArray[np.intp],
    ) -> tuple[StepEstimates, Verdict, Flags]:
        """The columns with memory as similar models have it, who answers, and where the model says any."""
        tested = learned.backtest
        need = memory_need(self.rule.model, where.batch[first], True, self.rule.precision)
        factor, unlike = learned.memory.factor(need, rule.memory[first])
        known = where.device >= 0
        memory = np.where(known, rule.memory * factor[kind], rule.memory)
        errors = (
            f"in the backtest the model's mean error of memory was {tested.memory:.1%}, the rule's"
            f" {tested.memory_rule:.1%}"
        )
        limit = learned.memory.farthest
        stranger = (
            f"this step is unlike those of the {learned.models} measured models (unlikeness"
            f" {float(unlike.max()):.1f}, limit {limit:.1f})"
        )
        verdict = judge(
            [
                Ground(RULE, "the need of a host was seen in the local run", ~known),
                lost_backtest(tested.memory, tested.memory_rule, errors),
                out_of_distribution(unlike[kind], limit, stranger),
                Ground(MODEL, errors),
            ],
            len(known),
        )
        high = np.where(known, memory * tested.memory_error[1], rule.memory_high)
        return replace(rule, memory=memory, memory_high=high), verdict, known


def _too_wide(known: Flags, factor: Array) -> Ground:
    """The rule answers where outcomes are known and the model's interval says nothing."""
    ground = too_wide(factor)
    return replace(ground, applies=ground.applies & known)


def _judged(learned: Corrections, runs: Sequence[PastRun], found: Hindsight) -> tuple[bool, str]:
    """Whether the outcomes may answer, and why."""
    ratios = np.array([run.ratio for run in runs])
    believed = found.belief >= BELIEVED
    count = int(believed.sum())
    if not count:
        return False, _disbelieved(ratios)
    tested = learned.backtest
    aside = f"; {_runs_words(ratios[~believed])} set aside" if count < len(runs) else ""
    what = (
        f"{count} earlier outcome{'s' if count > 1 else ''} of this workload:"
        f" {_as_words(float(np.exp(np.log(ratios[believed]).mean())))}{aside}"
    )
    error = tested.time_with(count)
    if error >= tested.time_rule:
        return False, f"{what}, but in the backtest such outcomes did not help"
    return True, (
        f"{what} (in the backtest that many took the mean error from {tested.time_rule:.0%} to {error:.0%})"
    )


def _disbelieved(ratios: Array) -> str:
    if len(ratios) == 1:
        return (
            f"the one earlier outcome, {_as_words(float(ratios[0]))}, is set aside: more likely a run that"
            " was stopped, or another job"
        )
    return (
        f"{len(ratios)} earlier outcomes contradict one another or the rule"
        f" ({_runs_words(ratios)}), so none is believed"
    )


def _without_runs(elsewhere: Sequence[PastRun], on_accelerator: bool) -> str:
    if not elsewhere:
        return "no earlier outcome of this workload is known"
    return (
        "the earlier outcomes were on CPUs, which say nothing about accelerators"
        if on_accelerator
        else "the earlier outcomes were on accelerators, which say nothing about CPUs"
    )


def _runs_words(ratios: Array) -> str:
    return f"{' and '.join(f'{ratio:.2g}' for ratio in ratios)} times the rule's time"


def _as_words(ratio: float) -> str:
    if 1 / _AS_SAID < ratio < _AS_SAID:
        return "as long as the rule said"
    return f"{max(ratio, 1 / ratio):.2g} times {'slower' if ratio > 1 else 'faster'} than the rule said"


def _width(low: Array, high: Array) -> Array:
    """How wide ranges of the rule are, relative to the one measured."""
    measured = calibration(reference()).time_error
    return np.asarray(np.log(high / low) / math.log(measured[1] / measured[0]))


def _device(name: str | None) -> str:
    """One name for all spellings; hosts are one kind."""
    facts = find_accelerator(name) if name else None
    return facts.name if facts else name or "host"


def _where(mask: Flags, yes: StepEstimates, no: StepEstimates, names: Sequence[str]) -> StepEstimates:
    """`no` with the named columns of `yes` where the mask says so."""
    if not mask.any():
        return no
    return replace(no, **{n: np.where(mask, getattr(yes, n), getattr(no, n)) for n in names})
