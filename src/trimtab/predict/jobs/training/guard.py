"""The guard of a training job's forecast: the rule's answer, the model's beside it, and which of them counts.

The rule answers where the model lost the backtest, where the job is unlike everything learned from, and where
the model's range says nothing. What was tried needs neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot import Array
from trimtab.predict.guard import MODEL, RULE
from trimtab.predict.jobs.training.local_runs import LocalJob
from trimtab.predict.jobs.training.ours import Belief, Ours, Trial
from trimtab.predict.jobs.training.rule import Rule
from trimtab.predict.jobs.training.table import Configurations

TRIAL = "trial"
_TOO_WIDE = 25.0  # high over low
_TOO_FAR = 2.0  # times as far as any job that was left out
_RULE_RANGE = 1.5  # either way, where nothing was learned


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Seconds of a step for every configuration, who says so, and why; `fits` is a chance."""

    low: Array
    value: Array
    high: Array
    fits: Array
    by: tuple[str, ...]
    reasons: tuple[str, ...]
    rule: Array
    model: Array
    belief: Belief


def forecast(ours: Ours, job: LocalJob, where: Configurations, trials: Sequence[Trial] = ()) -> Forecast:
    """All configurations of a job, from its local run, other jobs, and its trials."""
    belief = ours.belief(job, where, trials)
    rule = Rule.of(job)
    said = rule.step_seconds(where)
    low, value, high = belief.step_seconds
    trusted, reason = _judged(ours, job, where)
    by_model = trusted & (high / low <= _TOO_WIDE)
    range_of_rule = max(_RULE_RANGE, 1.0 + 2.0 * ours.backtest.rule)
    by = [MODEL if learned else RULE for learned in by_model]
    reasons = [
        reason if learned or not trusted else f"the model's range spans more than a factor of {_TOO_WIDE:g}"
        for learned in by_model
    ]
    low = np.where(by_model, low, said / range_of_rule)
    high = np.where(by_model, high, said * range_of_rule)
    chosen = np.where(by_model, value, said)
    for trial in trials:
        if trial.ok and trial.fidelity >= 1:
            noise = np.exp(belief.margin * belief.noise**0.5)
            chosen[trial.row] = trial.step_seconds
            low[trial.row], high[trial.row] = trial.step_seconds / noise, trial.step_seconds * noise
            by[trial.row], reasons[trial.row] = TRIAL, "it was tried"
    return Forecast(low, chosen, high, belief.fits, tuple(by), tuple(reasons), said, value, belief)


def _judged(ours: Ours, job: LocalJob, where: Configurations) -> tuple[bool, str]:
    """Whether the model may answer for this job, and why."""
    tested, jobs = ours.backtest, len(set(ours.known.job.tolist()))
    errors = f"on jobs left out the model was off by {tested.model:.1%}, the rule by {tested.rule:.1%}"
    if tested.model >= tested.rule:
        if jobs < 2:
            return False, "there is only one job to learn from, so nobody knows how good the model is"
        return False, errors
    far = ours.unlikeness(job, where)
    limit = _TOO_FAR * tested.unlike
    if far > limit:
        return False, f"the job is unlike the {jobs} learned from (unlikeness {far:.1f}, limit {limit:.1f})"
    return True, errors
