"""What is thought of configurations at some moment of a tuning session: by trials where there are some."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trimtab.collect import OUT_OF_MEMORY, Turn
from trimtab.core import BadInputError, Estimate, format_duration, format_money
from trimtab.predict import MODEL, RULE, TRIAL
from trimtab.tune.forecast_search import LIKELY, Forecasted
from trimtab.tune.job_space import JobSpace, Setup
from trimtab.tune.observation import Observation
from trimtab.tune.prior import COVERAGE, Prior
from trimtab.tune.trials import Trial, standard_error

_TRIAL_NOISE = 0.03  # of a full trial, over the truth: two of the same configuration differ about so much
_WIDTH = 1.645  # standard deviations on each side of 90 %
_SOURCES = {RULE: "the rule from its local run", MODEL: "the model from its local run and other jobs"}


@dataclass(frozen=True, slots=True)
class Opinion:
    """Seconds and dollars of the whole job, and what they rest on: rule, model or trial, and why that.

    `memory` is what a worker needs at its peak, in bytes, and `fits` the chance that its machine has so much.
    `fidelity` is the part of the window that a trial looked at.
    """

    row: int
    setup: Setup
    time: Estimate
    cost: Estimate
    evidence: str
    why: str
    memory: float
    fits: float
    fidelity: float | None = None


@dataclass(frozen=True)
class Opinions:
    """What is thought after these trials."""

    space: JobSpace
    objective: str
    prior: Prior
    trials: tuple[Trial, ...]

    @cached_property
    def seen(self) -> list[Observation]:
        """The last look at every configuration that was tried, as the search sees it.

        Methods that know no difference between a short look and a full one would go on asking for the same.
        """
        knows_short = self.prior.forecast is not None
        last = dict[int, Observation]()
        for trial in self.trials:
            row = self._row(trial)
            seconds = math.nan if trial.step_seconds is None else trial.step_seconds * self._steps(row)
            full = {"memory_fraction": 1.0} if trial.status == OUT_OF_MEMORY else {}
            fidelity = trial.fidelity if knows_short else 1.0
            last[row] = Observation(row, seconds, trial.ok, fidelity, full)
        return list(last.values())

    @cached_property
    def ranked(self) -> tuple[Opinion, ...]:
        """All that is known or believed, best first; what failed, or should lack memory, is not there."""
        tried = {self._row(trial): self.measured(trial) for trial in self.trials}
        believed = self.prior.believed(self.space, self.objective, self.seen)
        likely = np.flatnonzero(believed.runs >= LIKELY).tolist()
        known = [each for each in tried.values() if each is not None]
        guessed = [self._guess(row, believed) for row in likely if row not in tried]
        return tuple(
            sorted(known + guessed, key=lambda each: (self._value(each.time.value, each.row), each.row))
        )

    @property
    def best(self) -> Opinion | None:
        """What should be rented now."""
        return self.ranked[0] if self.ranked else None

    def of(self, row: int) -> Opinion | None:
        """What is thought of one configuration."""
        return next((each for each in self.ranked if each.row == row), None)

    def measured(self, trial: Trial) -> Opinion | None:
        """What a trial says of the whole job; None where it failed."""
        if not trial.ok or trial.step_seconds is None:
            return None
        row = self._row(trial)
        seconds, off = trial.step_seconds * self._steps(row), _off(trial.off or 0.0)
        time = Estimate(seconds, seconds * (1 - off), seconds * (1 + off), COVERAGE, "s")
        memory = trial.memory_peak_bytes or float(self.prior.rule_memory[row])
        how = "all of the window" if trial.fidelity == 1 else "a short look"
        why = f"it was tried: {trial.steps} steps in {how}"
        return self._opinion(row, time, TRIAL, why, memory, 1.0, trial.fidelity)

    def could_be_best(self, row: int, turn: Turn) -> bool:
        """Whether the truth behind a short look may lie below all else that is known or as good as known."""
        lowest = turn.step_seconds * self._steps(row) * (1 - _off(standard_error([turn])))
        others = [self._value(each.time.high, each.row) for each in self.ranked if each.row != row]
        return self._value(lowest, row) <= min(others, default=math.inf)

    def rests_on(self, opinion: Opinion) -> str:
        """Where its numbers come from."""
        done = [trial for trial in self.trials if trial.ok]
        own = [trial for trial in done if trial.setup == opinion.setup.name]
        if own:
            return f"a trial of it, {own[-1].steps} steps long"
        moved = f", moved by {counted(len(done))} elsewhere" if done else ""
        theirs = opinion.evidence == MODEL and self.prior.forecast is None
        return f"{f'the model of {self.prior.method}' if theirs else _SOURCES[opinion.evidence]}{moved}"

    def _guess(self, row: int, believed: Forecasted) -> Opinion:
        low, value, high = (float(each[row]) for each in (believed.low, believed.value, believed.high))
        time = Estimate(value, min(low, value), max(high, value), COVERAGE, "s")
        memory, fits = float(self.prior.rule_memory[row]), float(believed.runs[row])
        return self._opinion(row, time, believed.by[row], believed.reasons[row], memory, fits)

    def _opinion(
        self,
        row: int,
        time: Estimate,
        evidence: str,
        why: str,
        memory: float,
        fits: float,
        fidelity: float | None = None,
    ) -> Opinion:
        setup = self.space.setups[row]
        cost = time.scaled(setup.price_per_second, "$")
        return Opinion(row, setup, time, cost, evidence, why, memory, fits, fidelity)

    def _row(self, trial: Trial) -> int:
        return self.space.space.names.index(trial.setup)

    def _steps(self, row: int) -> float:
        return float(self.space.steps[row])

    def _value(self, seconds: float, row: int) -> float:
        return float(self.space.space.values(self.objective, [seconds], np.array([row]))[0])


def refuse_hopeless(now: Opinions, remedy: str) -> None:
    """A job that fails wherever it is tried is not recommended anywhere, nor one that fits nowhere."""
    last = _broken(now.trials)
    if last is not None:
        raise BadInputError(f"no trial completed, {last.setup} because {last.reason}; {remedy}")
    if not now.ranked:
        raise BadInputError(
            f"none of the {len(now.space.setups)} configurations is expected to have the memory that a"
            " worker needs; name larger shapes in the SPEC"
        )


def _broken(trials: Sequence[Trial]) -> Trial | None:
    """The last trial that failed for another reason than memory, where none has completed."""
    if any(trial.ok for trial in trials):
        return None
    return next((trial for trial in reversed(trials) if trial.status != OUT_OF_MEMORY), None)


def _off(standard_error: float) -> float:
    """By which part a trial may be off the truth, in nine cases of ten; always less than all of it."""
    return _WIDTH * min(0.5, math.hypot(_TRIAL_NOISE, standard_error))


def counted(trials: int) -> str:
    """In words."""
    return "a trial" if trials == 1 else f"{trials} trials"


def span(estimate: Estimate) -> str:
    """Seconds or dollars with their range, as people read them."""
    show = format_money if estimate.unit == "$" else format_duration
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"
