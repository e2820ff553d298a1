"""Learned corrections of the analytic rule, and the guard that chooses between the two.

For time the model rests on earlier outcomes of the workload. The logarithm of truth over rule has one part
that all of a workload's configurations share, a part that fades with the distance between batch sizes, one of
the number format, one of the device and one of the configuration alone; their sizes were measured (`Spread`).
Given some runs, the rest follows by conditioning a Gaussian. A run may also have been stopped half-way or be
another job, and a workload may do more than its steps. So the answer is an average over these explanations,
weighted by how well each explains the runs. A ratio of 1000 is explained by no kind of workload, so it counts
for nothing; two runs that agree support one another.

For memory the model rests on the errors for similar models. The logarithm of measured over estimated peak is
smooth in the composition of the memory, so a Gaussian process over those shares and sizes carries over from
one model to similar ones; far from all of them it leaves the rule as it is. Only its inducing points are
stored.

The rule answers for time where there are no outcomes, none is believable, the rule won the backtest, or the
model's interval is too wide; for memory, for a step that is further from all measured models than any
left-out model was, and on hosts, whose need was observed in the local run.
"""

import math
from collections.abc import Mapping, Sequence
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
    StepEstimates,
    at_least,
    choose,
    kinds,
)
from trimtab.predict.cost.scale_out import ScaleOutAssumptions
from trimtab.predict.cost.step_memory import MemoryNeed, memory_need
from trimtab.predict.gaussian_process import condition, squared_distance
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
from trimtab.predict.tables import Array, Flags

Rows = NDArray[np.intp]

_FEATURES = 9

# Two runs of the same configuration differ by about this much, as a log ratio: a choice, on the wide side.
_RUN_NOISE = 0.1
# No measurement gives these; they only matter for runs that the measured spread does not explain.
_STOPPED_EARLY = 0.05  # chance that a run ended at any point before its end
_ANOTHER_JOB = 0.05  # chance that it has nothing to do with the estimate
_ANOTHER_JOB_SPAN = math.log(1e6)  # whose ratio lies anywhere between 1/1000 and 1000
_SLOW_WORKLOAD = 0.05  # chance that a workload does more than its steps: checkpoints, evaluation, a slow disk
_SLOWER_BY = math.log(2.0)  # by how much then, and how much that varies
# However often it is observed, a ratio beyond these is of another job, or of the same at another length.
_POSSIBLE = (math.log(0.1), math.log(20.0))
# A run counts as this workload's when that is three times as likely as not.
BELIEVED = 0.75
MOST_RUNS = 5
_NEXT_TO_IMPOSSIBLE = 1e-5  # relative to the likeliest explanation


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a step runs. `width` is that of the rule's interval there; 1 on measured devices."""

    device: str
    devices: float
    batch: float
    half: bool
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of the workload: its time over the rule's.

    `noise` is the standard deviation of that ratio's log, on top of the noise between any two runs. The user
    confirmed a `trusted` run, so that it is genuine.
    """

    setting: Setting
    ratio: float
    noise: float
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of log(truth / rule) on one device over models that the rule was not fitted to.

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
    settings = [run.setting for run in runs]
    ratios = np.log([run.ratio for run in runs])
    among = _covariance(spread, settings, settings) + np.diag([run.noise**2 + _RUN_NOISE**2 for run in runs])
    across = _covariance(spread, targets, settings)
    alone = spread.total * np.array([target.width for target in targets]) ** 2
    mean, square, belief = np.zeros(len(targets)), np.zeros(len(targets)), np.zeros(len(settings))
    trusted = np.array([run.trusted for run in runs], dtype=np.bool_)
    for weight, genuine, shift, extra in _explanations(ratios, among, trusted):
        given = condition(among[np.ix_(genuine, genuine)] + extra, ratios[genuine] - shift)
        cross = across[:, genuine] + extra
        answer = shift + given.mean(cross)
        mean += weight * answer
        square += weight * (answer**2 + given.variance(alone + extra, cross))
        belief += weight * genuine
    return Hindsight(mean, np.sqrt(np.maximum(square - mean**2, 0.0)), belief)


def _covariance(spread: Spread, some: Sequence[Setting], others: Sequence[Setting]) -> Array:
    def pair(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        one, other = (np.array([getattr(setting, name) for setting in part]) for part in (some, others))
        return one[:, None], other[None]

    def same(name: str) -> Flags:
        one, other = pair(name)
        return np.asarray(one == other)

    batch, other_batch = pair("batch")
    apart = np.abs(np.log2(batch) - np.log2(other_batch))
    same_format, same_device = same("half"), same("device") & same("devices")
    shared = spread.total - spread.configuration - spread.number_format
    alike = (
        np.maximum(shared - spread.doubling * apart, 0.0)
        + spread.number_format * same_format
        + spread.configuration * (same_format & same_device & (apart == 0))
    )
    # Up to a width of one devices share the error, beyond it each has its own.
    width, other_width = pair("width")
    own = np.sqrt(np.maximum(width**2 - 1.0, 0.0)) * np.sqrt(np.maximum(other_width**2 - 1.0, 0.0))
    common = np.minimum(width, 1.0) * np.minimum(other_width, 1.0)
    return np.asarray(alike * common + spread.total * same_device * own)


def _explanations(ratios: Array, among: Array, trusted: Flags) -> list[tuple[float, Flags, float, float]]:
    """Probability, genuine runs, shift and extra variance of each explanation of the runs, likeliest first.

    Any of the runs may be genuine, and trusted ones are; the workload may be slower than its steps.
    """
    impossible = ((ratios < _POSSIBLE[0]) | (ratios > _POSSIBLE[1])) & ~trusted
    # Log density of each run if it was stopped early or is another job's.
    stopped = _STOPPED_EARLY * np.exp(np.minimum(ratios, 0.0)) * (ratios < 0)
    spoiled = np.log(stopped + _ANOTHER_JOB / _ANOTHER_JOB_SPAN)
    is_genuine = math.log(1.0 - _STOPPED_EARLY - _ANOTHER_JOB)
    speeds = ((0.0, 0.0, 1.0 - _SLOW_WORKLOAD), (_SLOWER_BY, _SLOWER_BY**2, _SLOW_WORKLOAD))
    explanations = []
    for flags, (shift, extra, chance) in product(product((True, False), repeat=len(ratios)), speeds):
        genuine = np.array(flags, dtype=np.bool_)
        if (genuine & impossible).any() or (trusted & ~genuine).any():
            continue
        density = is_genuine * int(genuine.sum()) + math.log(chance) + float(spoiled[~genuine].sum())
        if genuine.any():
            given = condition(among[np.ix_(genuine, genuine)] + extra, ratios[genuine] - shift)
            density += float(given.log_likelihood)
        explanations.append((density, genuine, shift, extra))
    explanations.sort(key=lambda explanation: -explanation[0])
    weights = np.exp(np.array([density for density, *_ in explanations]) - explanations[0][0])
    weights[weights < _NEXT_TO_IMPOSSIBLE] = 0.0
    weights /= weights.sum()
    weighted = zip(weights, explanations, strict=True)
    return [
        (float(weight), genuine, shift, extra) for weight, (_, genuine, shift, extra) in weighted if weight
    ]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryCorrection:
    """Inducing points in the space of features with their weights; `farthest` is that of left-out models."""

    center: Array
    scale: Array
    points: Array
    weights: Array
    farthest: float

    def factor(self, need: MemoryNeed, rule: Array) -> tuple[Array, Array]:
        """Factor on the rule's peaks, and unlikeness of each step to the points.

        The latter is the distance to the nearest, in standard deviations per feature.
        """
        place = (memory_features(need, rule) - self.center) / self.scale
        squared = squared_distance(place, self.points) / _FEATURES
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


@dataclass(frozen=True, slots=True)
class CorrectionBacktest:
    """Mean absolute percentage errors on models left out, as shares; `time[k]` with k earlier outcomes.

    `memory_error` is truth over corrected peak, (5 %, 95 %), with equal weight for every model.
    """

    time_rule: float
    time: Mapping[int, float]
    memory_rule: float
    memory: float
    memory_error: tuple[float, float]

    def time_with(self, outcomes: int) -> float:
        """The error with that many outcomes, or with the nearest number below that was tested."""
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
        backtest = CorrectionBacktest(
            float(test["time_rule"]),
            {int(k): float(error) for k, error in test["time"].items()},
            float(test["memory_rule"]),
            float(test["memory"]),
            (float(low), float(high)),
        )
        return Corrections(int(data["models"]), spread, parse_correction(data["memory"]), backtest)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"the corrections of {where} are not this version's: {error}") from None


def parse_correction(data: Mapping[str, Any]) -> MemoryCorrection:
    """A memory correction from plain data; raises ValueError, KeyError or TypeError if it is none."""
    names = ("center", "scale", "points", "weights")
    center, scale, points, weights = arrays = [np.array(data[name], dtype=float) for name in names]
    if points.shape != (weights.size, center.size) or not scale.shape == center.shape == (_FEATURES,):
        raise ValueError("the points of the memory correction do not match its weights")
    if not all(np.isfinite(a).all() for a in arrays) or not (scale > 0).all():
        raise ValueError("the memory correction holds a value that is not a number")
    return MemoryCorrection(center, scale, points, weights, float(data["farthest"]))


@cache
def shipped_corrections() -> Corrections | None:
    """Corrections of the reference device; None if only constants come with it."""
    device = reference()
    entry = device.constants.get("corrections")
    return None if entry is None else parse_corrections(entry, device.name)


_SECONDS = ("total", "launch", "compute", "traffic", "update", "network", "input")
# A ratio closer to one than this counts as equal to the rule's estimate.
_AS_ESTIMATED = 1.02


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Outcome of an earlier decision: time over the rule's, and the standard deviation of that ratio's log.

    `accelerator` is None for a run on CPUs; `devices` are all that took part, `batch` samples on each. The
    user confirmed a `trusted` one.
    """

    accelerator: str | None
    devices: float
    batch: float
    precision: str
    ratio: float
    noise: float
    trusted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class GuardedEstimates:
    """Both answers and the chosen one, as columns; where the model has no answer it repeats the rule.

    `time` and `memory` are the guard's verdicts, `has_time` and `has_memory` where the model has an answer.
    """

    rule: StepEstimates
    model: StepEstimates
    chosen: StepEstimates
    time: Verdict
    memory: Verdict
    has_time: Flags
    has_memory: Flags


class GuardedEstimator:
    """Rule and model side by side for one profile and its earlier runs."""

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
        rule = self.rule.estimate(where)
        if self._learned is None:
            verdict = judge([Ground(RULE, "no correction comes with this version")], len(where.device))
            nowhere = np.zeros(len(where.device), dtype=np.bool_)
            return GuardedEstimates(rule, rule, rule, verdict, verdict, nowhere, nowhere)
        first, kind = kinds(where.device, where.per_node * where.nodes, where.batch)
        corrected, time, has_time, slowest = self._time(self._learned, rule, where, first, kind)
        model, memory, has_memory = self._memory(self._learned, corrected, where, first, kind)
        chosen = choose(time.by_model, model, rule, (*_SECONDS, "low", "high"))
        chosen = choose(memory.by_model, model, chosen, ("memory", "memory_high"))
        # Where the rule answers although a run took longer, the range reaches up to that run.
        chosen = replace(chosen, high=np.where(time.by_model, chosen.high, np.maximum(chosen.high, slowest)))
        return GuardedEstimates(rule, model, chosen, time, memory, has_time, has_memory)

    def _past_runs(self, earlier: Sequence[EarlierRun]) -> dict[bool, list[PastRun]]:
        """Earlier runs on accelerators (True) and on CPUs: neither informs about the other."""
        runs: dict[bool, list[PastRun]] = {True: [], False: []}
        known = [run for run in earlier if run.accelerator is None or find_accelerator(run.accelerator)]
        if not known:
            return runs
        names = tuple(dict.fromkeys(run.accelerator for run in known if run.accelerator))
        index = np.array([names.index(run.accelerator) if run.accelerator else -1 for run in known])
        one, batch = np.ones(len(known)), np.array([run.batch for run in known])
        estimates = self.rule.estimate(Placements(names, index, one, one, one, one, 1e9 * one, batch))
        widths = _width(estimates.low, estimates.high)
        for run, width, usable in zip(known, widths, estimates.known, strict=True):
            if usable:
                half, device = is_half(run.precision), _device(run.accelerator)
                setting = Setting(device, run.devices, run.batch, half, float(width))
                runs[run.accelerator is not None].append(PastRun(setting, run.ratio, run.noise, run.trusted))
        return {on_accelerator: past[-MOST_RUNS:] for on_accelerator, past in runs.items()}

    def _time(
        self, learned: Corrections, rule: StepEstimates, where: Placements, first: Rows, kind: Rows
    ) -> tuple[StepEstimates, Verdict, Flags, Array]:
        """The rule's columns with times by the outcomes, the verdict, where there are any outcomes, and the
        largest ratio of a run that was not believed although it took longer than estimated.
        """
        accelerated = where.device[first] >= 0
        factor, low, high = np.ones(len(first)), rule.low[first], rule.high[first]
        known, slowest = np.zeros(len(first), dtype=np.bool_), np.ones(len(first))
        grounds = []
        for on_accelerator, runs in self._runs.items():
            here = accelerated == on_accelerator
            if not runs or not here.any():
                reason = "no earlier outcome of this workload is known"
                if self._runs[not on_accelerator]:
                    there, elsewhere = (
                        ("CPUs", "accelerators") if on_accelerator else ("accelerators", "CPUs")
                    )
                    reason = f"the earlier outcomes were on {there}, which say nothing about {elsewhere}"
                grounds.append(Ground(RULE, reason, here))
                continue
            answer = hindsight(learned.spread, runs, self._settings(rule, where, first[here]))
            factor[here] = np.exp(answer.mean)
            high[here] = np.exp(learned.spread.margin * answer.deviation)
            low[here] = 1.0 / high[here]
            known |= here
            possible = [math.log(run.ratio) <= _POSSIBLE[1] for run in runs]
            doubted = zip(runs, possible, answer.belief, strict=True)
            slowest[here] = max((r.ratio for r, may, sure in doubted if may and sure < BELIEVED), default=1.0)
            grounds.append(replace(_outcome_ground(learned.backtest, runs, answer), applies=here))
        wide = too_wide(high / low)
        verdict = judge([replace(wide, applies=wide.applies & known), *grounds], len(first))
        scale = factor[kind]
        scaled = {name: getattr(rule, name) * scale for name in _SECONDS} if known.any() else {}
        corrected = at_least(replace(rule, low=low[kind], high=high[kind], **scaled))
        return corrected, verdict.at(kind), known[kind], slowest[kind]

    def _settings(self, rule: StepEstimates, where: Placements, rows: Rows) -> list[Setting]:
        half, names = is_half(self.rule.precision), (*where.devices, None)
        devices = where.per_node * where.nodes
        width = _width(rule.low[rows], rule.high[rows])
        return [
            Setting(
                _device(names[where.device[row]]),
                float(devices[row]),
                float(where.batch[row]),
                half,
                float(w),
            )
            for row, w in zip(rows, width, strict=True)
        ]

    def _memory(
        self, learned: Corrections, rule: StepEstimates, where: Placements, first: Rows, kind: Rows
    ) -> tuple[StepEstimates, Verdict, Flags]:
        """The columns with memory corrected by similar models, the verdict, and where it is corrected."""
        tested, limit = learned.backtest, learned.memory.farthest
        need = memory_need(self.rule.model, where.batch[first], True, self.rule.precision)
        factor, unlike = learned.memory.factor(need, rule.memory[first])
        spread = ~where.layouts.is_plain if where.layouts else np.zeros(len(where.device), dtype=np.bool_)
        known = (where.device >= 0) & ~spread
        memory = np.where(known, rule.memory * factor[kind], rule.memory)
        errors = (
            f"in the backtest the model's mean error of memory was {tested.memory:.1%}, the rule's"
            f" {tested.memory_rule:.1%}"
        )
        unlikeness = (
            f"this step is unlike those of the {learned.models} measured models (unlikeness"
            f" {float(unlike.max()):.1f}, limit {limit:.1f})"
        )
        verdict = judge(
            [
                Ground(RULE, "the need of a host was observed in the local run", where.device < 0),
                Ground(RULE, "no model whose state is spread over devices was measured", spread),
                lost_backtest(tested.memory, tested.memory_rule, errors),
                out_of_distribution(unlike[kind], limit, unlikeness),
                Ground(MODEL, errors),
            ],
            len(known),
        )
        high = np.where(known, memory * tested.memory_error[1], rule.memory_high)
        return replace(rule, memory=memory, memory_high=high), verdict, known


def _outcome_ground(tested: CorrectionBacktest, runs: Sequence[PastRun], answer: Hindsight) -> Ground:
    """The model answers if some outcomes are believed and such outcomes helped in the backtest."""
    ratios = np.array([run.ratio for run in runs])
    believed = answer.belief >= BELIEVED
    count = int(believed.sum())
    if not count and len(runs) == 1:
        if 0 < math.log(ratios[0]) <= _POSSIBLE[1]:
            return Ground(
                RULE,
                f"the one earlier outcome was {_relative(float(ratios[0]))}, more than any measured workload:"
                " it only widens the range; trimtab outcome --trust makes it count",
            )
        cause = "a run that was stopped, or another job" if ratios[0] < 1 else "another job or another length"
        return Ground(
            RULE,
            f"the one earlier outcome, {_relative(float(ratios[0]))}, is set aside: more likely {cause}",
        )
    if not count:
        return Ground(
            RULE,
            f"{len(ratios)} earlier outcomes contradict one another or the rule ({_listed(ratios)}),"
            " so none is believed",
        )
    aside = f"; {_listed(ratios[~believed])} set aside" if count < len(runs) else ""
    mean = _relative(float(np.exp(np.log(ratios[believed]).mean())))
    outcomes = f"{count} earlier outcome{'s' if count > 1 else ''} of this workload: {mean}{aside}"
    error = tested.time_with(count)
    if error >= tested.time_rule:
        return Ground(RULE, f"{outcomes}, but in the backtest such outcomes did not help")
    change = f"from {tested.time_rule:.0%} to {error:.0%}"
    return Ground(MODEL, f"{outcomes} (in the backtest that many took the mean error {change})")


def _listed(ratios: Array) -> str:
    return f"{' and '.join(f'{ratio:.2g}' for ratio in ratios)} times the rule's time"


def _relative(ratio: float) -> str:
    if 1 / _AS_ESTIMATED < ratio < _AS_ESTIMATED:
        return "as long as the rule estimated"
    return f"{max(ratio, 1 / ratio):.2g} times {'slower' if ratio > 1 else 'faster'} than the rule estimated"


def _width(low: Array, high: Array) -> Array:
    """Width of the rule's intervals relative to that on the measured device."""
    measured = calibration(reference()).time_error
    return np.asarray(np.log(high / low) / math.log(measured[1] / measured[0]))


def _device(name: str | None) -> str:
    """One name for all spellings; hosts are one kind."""
    facts = find_accelerator(name) if name else None
    return facts.name if facts else name or "host"
