"""Estimates for every configuration at some moment of a tuning session, ranked, and decisions from them.

A configuration that was tried has its trial's estimate, any other one the searcher's belief.
"""

import math
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from trimtab.collect import OUT_OF_MEMORY, Turn
from trimtab.core import (
    Answer,
    BadInputError,
    Contribution,
    Decision,
    Estimate,
    Scalar,
    format_duration,
    format_money,
)
from trimtab.predict import MODEL, RULE, TRIAL
from trimtab.tune.searcher import Belief, Searcher
from trimtab.tune.space import Observation
from trimtab.tune.trials import Trial, standard_error

if TYPE_CHECKING:
    from trimtab.tune.command_space import CommandSpace, PricedSettings
    from trimtab.tune.job_space import JobSpace, Setup

COVERAGE = 0.9
_TRIAL_NOISE = 0.03  # of a full trial, over the truth: two of the same configuration differ about so much
_WIDTH = 1.645  # standard deviations on each side of 90 %
_ALTERNATIVES = 5  # in a decision


@dataclass(frozen=True, slots=True)
class Opinion:
    """Seconds and dollars of the whole workload in a configuration.

    `evidence` is rule, model or trial, and `why` the reason for that. `memory` is a worker's peak in bytes,
    None where it is not known; `fits` is the chance to complete. `fidelity` is the part of a full trial that
    was run.
    """

    row: int
    setup: "Setup | PricedSettings"
    time: Estimate
    evidence: str
    why: str
    memory: float | None
    fits: float
    fidelity: float | None = None

    @property
    def cost(self) -> Estimate:
        """Dollars of all machines for the whole workload."""
        return self.time.scaled(self.setup.price_per_second, "$")


@dataclass(frozen=True)
class Opinions:
    """Opinions about all configurations after some trials."""

    task: "JobSpace | CommandSpace"
    searcher: Searcher
    trials: tuple[Trial, ...]
    within: tuple[Opinion, ...] | None = None  # the alternatives of a decision; all that are ranked if None

    @cached_property
    def observations(self) -> list[Observation]:
        """The last trial of every configuration that was tried.

        A random search would draw a configuration again after a short trial, so all count as full for it.
        """
        last = dict[int, Observation]()
        for trial in self.trials:
            row = self._row(trial)
            seconds = math.nan if trial.step_seconds is None else trial.step_seconds * self._steps(row)
            full = {"memory_fraction": 1.0} if trial.status == OUT_OF_MEMORY else {}
            fidelity = 1.0 if self.searcher.at_random else trial.fidelity
            last[row] = Observation(row, seconds, trial.ok, fidelity, full)
        return list(last.values())

    @cached_property
    def ranked(self) -> tuple[Opinion, ...]:
        """Opinions by the objective, best first; without failed trials and what should lack memory."""
        tried = {self._row(trial): self.measured(trial) for trial in self.trials}
        rows = self.searcher.ranked(self.observations)
        return tuple(tried.get(row) or self._believed(row) for row in rows)

    @property
    def best(self) -> Opinion | None:
        """The configuration to rent now."""
        return self.ranked[0] if self.ranked else None

    def of(self, row: int) -> Opinion | None:
        """The opinion about one configuration; None where it is not ranked."""
        return next((opinion for opinion in self.ranked if opinion.row == row), None)

    def measured(self, trial: Trial) -> Opinion | None:
        """The whole workload by a trial; None where the trial failed."""
        if not trial.ok or trial.step_seconds is None:
            return None
        row = self._row(trial)
        seconds, off = trial.step_seconds * self._steps(row), _relative_error(trial.off or 0.0)
        time = Estimate(seconds, seconds * (1 - off), seconds * (1 + off), COVERAGE, "s")
        memory = trial.memory_peak_bytes or self.searcher.knowledge.memory(row)
        why = f"it was tried: {trial.extent}"
        return Opinion(row, self.task.setups[row], time, TRIAL, why, memory, 1.0, trial.fidelity)

    def could_be_best(self, row: int, turn: Turn) -> bool:
        """Whether the low end of a short trial is below the high end of every other configuration."""
        lowest = turn.step_seconds * self._steps(row) * (1 - _relative_error(standard_error([turn])))
        others = [
            self._value(opinion.time.high, opinion.row) for opinion in self.ranked if opinion.row != row
        ]
        return self._value(lowest, row) <= min(others, default=math.inf)

    def rests_on(self, opinion: Opinion) -> str:
        """The evidence of an opinion, in words."""
        done = [trial for trial in self.trials if trial.ok]
        own = [trial for trial in done if trial.setup == opinion.setup.name]
        if own:
            return f"a trial of it, {own[-1].extent}"
        moved = f", moved by {counted(len(done))} elsewhere" if done else ""
        return f"{self.searcher.knowledge.source(opinion.evidence)}{moved}"

    def decision(self, kind: str, row: int, method: str, reason: str, now: float) -> Decision:
        """The decision to try ("trial") or to rent ("tune", "recommend") a configuration."""
        chosen, setup = self.of(row), self.task.setups[row]
        knowledge = self.searcher.knowledge
        action, model = _action(setup), f"model:tune-{method}"
        estimates = _estimates(chosen) if chosen else {}
        ranked = self.ranked if self.within is None else self.within
        others = [opinion for opinion in ranked if opinion.row != row][:_ALTERNATIVES]
        return Decision(
            id=uuid.uuid4().hex[:12],
            created=now,
            kind=kind,
            subject=self.task.name,
            action=action,
            estimates=estimates,
            chosen_by=knowledge.rule_name if chosen and chosen.evidence == RULE else model,
            rule=Answer(knowledge.rule_name, action, self.by_rule(row)),
            model=Answer(model, action, estimates),
            alternatives=tuple(
                Answer(model, _action(opinion.setup), _estimates(opinion)) for opinion in others
            ),
            reason=reason,
            contributions=self._contributions(chosen) if chosen else (),
        )

    def by_rule(self, row: int) -> dict[str, Estimate]:
        """Time and cost by the rule alone; empty where it knows nothing."""
        seconds = self.searcher.knowledge.rule_range(row, self.observations)
        if seconds is None:
            return {}
        low, value, high = seconds
        time = Estimate(value, low, high, COVERAGE, "s")
        return {"time": time, "cost": time.scaled(self.task.setups[row].price_per_second, "$")}

    def _contributions(self, opinion: Opinion) -> tuple[Contribution, ...]:
        """Seconds by their source; they add up to the opinion's time."""
        rule = self.by_rule(opinion.row)
        if not rule:
            return ()
        learned = {MODEL: "learned from others and trials", TRIAL: "shown by a trial"}
        more = opinion.time.value - rule["time"].value
        moved = Contribution(learned.get(opinion.evidence, "moved by trials"), more)
        first = Contribution(self.searcher.knowledge.source(RULE), rule["time"].value)
        return (first, *([moved] if more else []))

    def _believed(self, row: int) -> Opinion:
        belief = self._belief
        assert belief is not None  # or the row would not be ranked
        low, value, high = (float(bound[row]) for bound in (belief.low, belief.value, belief.high))
        time = Estimate(value, min(low, value), max(high, value), COVERAGE, "s")
        memory, runs = self.searcher.knowledge.memory(row), float(belief.runs[row])
        setup = self.task.setups[row]
        return Opinion(row, setup, time, belief.by[row], belief.reasons[row], memory, runs)

    @cached_property
    def _belief(self) -> Belief | None:
        return self.searcher.knowledge.belief(self.observations)

    def _row(self, trial: Trial) -> int:
        return self.task.space.names.index(trial.setup)

    def _steps(self, row: int) -> float:
        return float(self.task.steps[row])

    def _value(self, seconds: float, row: int) -> float:
        return float(self.task.space.values(self.searcher.objective, [seconds], np.array([row]))[0])


def refuse_hopeless(now: Opinions, remedy: str) -> None:
    """Refuse to recommend where all trials failed, where nothing fits, and where nothing is known."""
    failures = [trial for trial in now.trials if trial.status != OUT_OF_MEMORY]
    if failures and not any(trial.ok for trial in now.trials):
        raise BadInputError(
            f"no trial completed, {failures[-1].setup} because {failures[-1].reason}; {remedy}"
        )
    if not now.ranked and now.searcher.knowledge.belief(now.observations) is None:
        raise BadInputError(
            f"nothing is known of {now.task.name} without a trial; allow one with --trials, or name other"
            " workloads' measurements with --data"
        )
    if not now.ranked:
        raise BadInputError(
            f"none of the {len(now.task.setups)} configurations is expected to have the memory that a"
            " worker needs; name larger shapes in the SPEC"
        )


def _relative_error(standard_error: float) -> float:
    """Half-width of a trial's 90 % interval over its value; always below 1."""
    return _WIDTH * min(0.5, math.hypot(_TRIAL_NOISE, standard_error))


def _action(setup: "Setup | PricedSettings") -> dict[str, Scalar]:
    return {**setup.action, "price_per_second": setup.price_per_second}


def _estimates(opinion: Opinion) -> dict[str, Estimate]:
    return {"time": opinion.time, "cost": opinion.cost}


def counted(trials: int) -> str:
    """Such as "a trial" or "3 trials"."""
    return "a trial" if trials == 1 else f"{trials} trials"


def span(estimate: Estimate) -> str:
    """Seconds or dollars with their range, such as "$0.50 ($0.40 to $0.60)"."""
    show = format_money if estimate.unit == "$" else format_duration
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"
