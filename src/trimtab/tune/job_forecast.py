"""The forecast of a training job in every configuration: from a local run, other jobs, and its own trials.

The learned model answers where its guard allows it. Elsewhere the rule from the local run answers, moved by
the job's trials through a Gaussian process over what the rule gets wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict import (
    MODEL,
    RULE,
    Array,
    Configurations,
    DataSet,
    LocalJob,
    StepTimeModel,
    StepTimeRule,
    StepTrial,
    condition,
    forecast,
)
from trimtab.tune.searcher import LIKELY, Belief, Mixture
from trimtab.tune.space import Observation, Space

# Standard deviations of log(measured / rule): what all configurations share, and what is their own.
_SHARED, _OWN = 0.25, 0.15
_LENGTH = 0.5  # of settings scaled to 0..1, over which what is their own is alike
_NOISE = 0.03  # of a full trial
_DOUBT = 0.1  # that the rule is wrong about whether the memory suffices
_WIDTH = 1.645  # standard deviations on each side of 90 %
_RULE_OFF = 2.0  # times too fast or too slow, in nine cases of ten, where nothing else is known


@dataclass(frozen=True, slots=True, eq=False)
class JobForecast:
    """Forecast of a job in every configuration; `model` is None where the rule answers for all of them.

    Seconds and `steps` are those of the whole job, `rule_memory` is a worker's peak in bytes, `rule_fits` is
    1 where the machine has that much. The model learned from `jobs` other jobs.
    """

    space: Space
    where: Configurations
    steps: Array
    local: LocalJob
    rule_seconds: Array
    rule_memory: Array
    rule_fits: Array
    model: StepTimeModel | None
    jobs: int
    why: str
    note: str

    rule_name = "rule:training-step"
    least_chance = LIKELY  # the local run shows what memory is needed, so nothing is learned from a failure
    rents_untried = True

    @classmethod
    def of(
        cls, space: Space, where: Configurations, steps: Array, local: LocalJob, others: DataSet | None
    ) -> "JobForecast":
        """The forecast of the job of a local run; its own points among those of `others` are left out."""
        rule = StepTimeRule.of(local)
        points = others.points.without(local.name) if others is not None else None
        model, jobs, why = None, 0, "nothing is known of other jobs"
        note = f"the rule from the local run answers: {why}"
        if others is not None and points is not None and points.ok.any():
            jobs, fitted = len(points.jobs), StepTimeModel.fitted(points, others.local)
            first = forecast(fitted, local, where)
            why = first.reasons[0]
            note = f"the rule from the local run answers: {why}"
            if MODEL in first.by:
                model, why = fitted, first.reasons[first.by.index(MODEL)]
                learned = f"{int(points.ok.sum())} measured points of {jobs} other jobs"
                note = f"the model learned from {learned} answers: {why}"
        by_rule = (rule.step_seconds(where) * steps, rule.memory_bytes(where), rule.fits(where))
        return cls(space, where, steps, local, *by_rule, model, jobs, why, note)

    def rule_range(self, row: int, observations: Sequence[Observation] = ()) -> tuple[float, float, float]:
        """Low, value and high seconds by the rule alone."""
        value = float(self.rule_seconds[row])
        return value / _RULE_OFF, value, value * _RULE_OFF

    def source(self, evidence: str) -> str:
        return f"the {evidence} from its local run{'' if evidence == RULE else ' and other jobs'}"

    def memory(self, row: int) -> float:
        return float(self.rule_memory[row])

    @property
    def first_pictures(self) -> Mixture:
        return self.mixture(())

    @property
    def first_failing(self) -> Array:
        return 1 - self.runs(())[None]

    @property
    def first_reason(self) -> str:
        return f"forecast to be the best by the {RULE if self.model is None else MODEL}"

    def mixture(self, observations: Sequence[Observation]) -> Mixture:
        belief, deviation = self._given(observations)
        return Mixture(np.log(belief.value)[None], deviation[None], np.ones(1))

    def runs(self, observations: Sequence[Observation]) -> Array:
        return self._given(observations)[0].runs

    def belief(self, observations: Sequence[Observation]) -> Belief:
        return self._given(observations)[0]

    def _given(self, observations: Sequence[Observation]) -> tuple[Belief, Array]:
        """The belief after trials, and the standard deviation of log seconds."""
        belief, deviation = (
            self._by_rule(observations) if self.model is None else self._by_model(self.model, observations)
        )
        for one in observations:
            belief.runs[one.row] = float(one.ok)
        return belief, deviation

    def _by_model(self, model: StepTimeModel, observations: Sequence[Observation]) -> tuple[Belief, Array]:
        tried = [
            StepTrial(one.row, one.seconds / float(self.steps[one.row]), one.ok, one.fidelity)
            for one in observations
            # A lack of memory says something of other configurations too.
            if one.ok or one.metrics.get("memory_fraction", 0.0) >= 1
        ]
        answer = forecast(model, self.local, self.where, tried)
        seconds = (answer.low * self.steps, answer.value * self.steps, answer.high * self.steps)
        return Belief(*seconds, answer.fits.copy(), answer.by, answer.reasons), answer.belief.deviation

    def _by_rule(self, observations: Sequence[Observation]) -> tuple[Belief, Array]:
        places = self.space.coordinates()
        apart = ((places[:, None] - places[None]) ** 2).sum(axis=-1)
        prior = _SHARED**2 + _OWN**2 * np.exp(-apart / (2 * _LENGTH**2))
        done = [one for one in observations if one.ok]
        mean, variance = np.log(self.rule_seconds), np.diag(prior)
        if done:
            rows = np.array([one.row for one in done])
            off = np.log([one.seconds for one in done]) - mean[rows]
            noise = [_NOISE**2 / one.fidelity for one in done]
            given = condition(prior[np.ix_(rows, rows)], off, noise)
            mean, variance = mean + given.mean(prior[:, rows]), given.variance(variance, prior[:, rows])
        deviation = np.sqrt(variance + _NOISE**2)
        low, value, high = (np.exp(mean + by * _WIDTH * deviation) for by in (-1, 0, 1))
        runs = np.where(self.rule_fits > 0, 1 - _DOUBT, _DOUBT)
        count = len(runs)
        return Belief(low, value, high, runs, (RULE,) * count, (self.why,) * count), deviation
