"""The guard of a recommendation: the rule's answer, the corrected one beside it, and which of them counts.

For time the model is what earlier outcomes of the workload say (`outcomes`); the rule answers when there are
none, when none is believable, when the rule won the backtest, or when the model's range says nothing. For
memory the model is what models alike were off by (`memory`); the rule answers for a step that is further from
all of them than any left-out model was, and on hosts, whose need was seen in the local run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import find_accelerator
from trimtab.core import Profile
from trimtab.predict.cost.analytic import AnalyticEstimator, Placements, StepEstimates, kinds
from trimtab.predict.cost.calibrated import calibration, reference
from trimtab.predict.cost.correction.outcomes import (
    BELIEVED,
    MOST_RUNS,
    Hindsight,
    PastRun,
    Setting,
    hindsight,
)
from trimtab.predict.cost.correction.shipped import Corrections, shipped_corrections
from trimtab.predict.cost.demand import is_half
from trimtab.predict.cost.scale_out import ScaleOutAssumptions
from trimtab.predict.cost.step_memory import memory_need

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_TOO_WIDE = 25.0  # high over low
_SECONDS = ("total", "launch", "compute", "traffic", "update", "network", "input")
# Closer to one than this, an outcome is said to be as the rule said.
_AS_SAID = 1.02


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What became of an earlier decision: its time over the rule's, and how uncertain that ratio's log is.

    `accelerator` is None for a run on CPUs; `devices` are all that took part, `batch` samples on each.
    """

    accelerator: str | None
    devices: float
    batch: float
    precision: str
    ratio: float
    noise: float


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Who answers for one quantity, by placement, and why; `asked` where the model has an answer at all."""

    asked: Flags
    by_model: Flags
    reasons: tuple[str, ...]
    reason: NDArray[np.intp]

    def words(self, row: int) -> str:
        """ "the model answers: …" or "the rule answers: …"."""
        who = "model" if self.by_model[row] else "rule"
        return f"the {who} answers: {self.reasons[self.reason[row]]}"


@dataclass(frozen=True, slots=True, eq=False)
class GuardedEstimates:
    """Both answers and the chosen one, as columns; where the model was not asked it repeats the rule."""

    rule: StepEstimates
    model: StepEstimates
    chosen: StepEstimates
    time: Choice
    memory: Choice


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
        nobody = np.zeros(len(where.device), dtype=np.bool_)
        none = Choice(nobody, nobody, ("nothing was learned beside it",), nobody.astype(np.intp))
        if self._learned is None:
            return GuardedEstimates(rule, rule, rule, none, none)
        first, kind = kinds(where.device, where.per_node * where.nodes, where.batch)
        corrected, time = self._time(self._learned, rule, where, first, kind)
        model, memory = self._memory(self._learned, corrected, where, first, kind)
        chosen = _where(time.by_model, model, rule, (*_SECONDS, "low", "high"))
        return GuardedEstimates(
            rule, model, _where(memory.by_model, model, chosen, ("memory", "memory_high")), time, memory
        )

    def _past_runs(self, earlier: Sequence[EarlierRun]) -> dict[bool, list[PastRun]]:
        """Those on accelerators (True) and on CPUs: neither says anything about the other."""
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
    ) -> tuple[StepEstimates, Choice]:
        """The rule's columns with times as the outcomes have them, and who answers."""
        accelerated = where.device[first] >= 0
        factor, low, high = np.ones(len(first)), rule.low[first], rule.high[first]
        asked, by_model = np.zeros(len(first), dtype=np.bool_), np.zeros(len(first), dtype=np.bool_)
        reasons = [_without_runs(self._runs[not on], on) for on in (False, True)]
        reason = accelerated.astype(np.intp)
        for on_accelerator, runs in self._runs.items():
            chosen = np.flatnonzero(accelerated == on_accelerator)
            if not runs or not chosen.size:
                continue
            found = hindsight(learned.spread, runs, self._settings(rule, where, first[chosen]))
            factor[chosen] = np.exp(found.mean)
            high[chosen] = np.exp(learned.spread.margin * found.deviation)
            low[chosen] = 1.0 / high[chosen]
            trusted, reasons[on_accelerator] = _judged(learned, runs, found)
            asked[chosen] = True
            by_model[chosen] = trusted
        too_wide = by_model & (high / low > _TOO_WIDE)
        reason[too_wide] = len(reasons)
        reasons.append(f"the model's range spans more than a factor of {_TOO_WIDE:.0f} and says nothing")
        scale = factor[kind]
        scaled = {name: getattr(rule, name) * scale for name in _SECONDS} if asked.any() else {}
        return (
            replace(rule, low=low[kind], high=high[kind], **scaled),
            Choice(asked[kind], (by_model & ~too_wide)[kind], tuple(reasons), reason[kind]),
        )

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
    ) -> tuple[StepEstimates, Choice]:
        """The columns with memory as models alike have it, and who answers."""
        tested = learned.backtest
        need = memory_need(self.rule.model, where.batch[first], True, self.rule.precision)
        peaks = rule.memory[first]
        factor, unlike = learned.memory.factor(need, peaks)
        asked = where.device >= 0
        near = (unlike <= learned.memory.farthest)[kind]
        beaten = tested.memory < tested.memory_rule
        memory = np.where(asked, rule.memory * factor[kind], rule.memory)
        reasons = (
            f"in the backtest the model's mean error of memory was {tested.memory:.1%}, the rule's"
            f" {tested.memory_rule:.1%}",
            f"this step is unlike those of the {learned.models} measured models (unlikeness"
            f" {float(unlike.max()):.1f}, limit {learned.memory.farthest:.1f})",
            "the need of a host was seen in the local run",
        )
        reason = np.where(asked, np.where(near | (not beaten), 0, 1), 2)
        high = np.where(asked, memory * tested.memory_error[1], rule.memory_high)
        return (
            replace(rule, memory=memory, memory_high=high),
            Choice(asked, asked & near & beaten, reasons, reason.astype(np.intp)),
        )


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
