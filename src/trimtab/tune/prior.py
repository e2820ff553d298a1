"""What is known of a job before its first trial, and the search that begins from there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.core import NotFoundError, did_you_mean
from trimtab.predict import (
    MODEL,
    RULE,
    Array,
    Case,
    Configurations,
    DataSet,
    LocalJob,
    Ours,
    Rule,
    forecast,
    metrics_table,
)
from trimtab.tune.forecast_search import Forecast, Forecasted, ForecastSearch
from trimtab.tune.job_space import JobSpace
from trimtab.tune.method import Search
from trimtab.tune.model_forecast import ModelForecast
from trimtab.tune.observation import Observation
from trimtab.tune.rule_forecast import RuleForecast

OURS = "trimtab"
COVERAGE = 0.9
_RULE_OFF = 2.0  # times too fast or too slow, in nine cases of ten, where nothing else is known


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A search that has begun, and what the rule says by itself.

    That is seconds of the whole job, bytes that a worker needs, and 1 where there are so many. The search
    was told of `jobs` others. `forecast` is what ours goes by; other methods have only what they say.
    """

    method: str
    search: Search
    rule_seconds: Array
    rule_memory: Array
    rule_fits: Array
    jobs: int
    note: str
    forecast: Forecast | None = None

    def believed(self, space: JobSpace, objective: str, seen: Sequence[Observation]) -> Forecasted:
        """Of every configuration: seconds of the whole job, and who says so."""
        if self.forecast is not None:
            return self.forecast.given(seen)
        belief = self.search.belief(seen)
        unit = space.space.price_per_second if objective == "cost" else np.ones(len(space.setups))
        low, value, high = (
            (column / unit for column in belief)
            if belief is not None
            else (self.rule_seconds * off for off in (1 / _RULE_OFF, 1.0, _RULE_OFF))
        )
        rows = len(space.setups)
        by, why = (RULE, "nothing was tried yet") if belief is None else (MODEL, f"{self.method} says so")
        return Forecasted(low, value, high, np.log(high / low), self.rule_fits, (by,) * rows, (why,) * rows)

    def rule_range(self, row: int) -> tuple[float, float, float]:
        """Seconds by the rule alone: low, value, high."""
        value = float(self.rule_seconds[row])
        return value / _RULE_OFF, value, value * _RULE_OFF


def begin(
    method: str, space: JobSpace, objective: str, local: LocalJob, others: DataSet | None, seed: int = 0
) -> Prior:
    """The search of that name, told the job's local run and what other jobs did."""
    from trimtab.tune import METHODS

    check_method(method)
    rule, where = Rule.of(local), space.where
    by_rule = (rule.step_seconds(where) * space.steps, rule.memory_bytes(where), rule.fits(where))
    if method == OURS:
        jobs = len(set(others.points.jobs) - {space.job.name}) if others is not None else 0
        rule_forecast = RuleForecast(space.space, by_rule[0], by_rule[2])
        chosen, note = _forecast(space, local, where, others, rule_forecast)
        return Prior(method, ForecastSearch(space.space, objective, chosen), *by_rule, jobs, note, chosen)
    cases = cases_of(space, others) if others is not None else []
    begun = METHODS[method].begin(space.space, objective, cases, seed)
    return Prior(method, begun, *by_rule, len(cases), f"{method} chooses, told of {len(cases)} other jobs")


def _forecast(
    space: JobSpace, local: LocalJob, where: Configurations, others: DataSet | None, by_rule: RuleForecast
) -> tuple[Forecast, str]:
    """The model's forecast where there is one and its guard lets it answer, else the rule's; and why."""
    points = others.points.without(space.job.name) if others is not None else None
    if others is None or points is None or not points.ok.any():
        return by_rule, f"the rule from the local run answers: {by_rule.why}"
    ours = Ours.fitted(points, others.local)
    said = forecast(ours, local, where)
    if MODEL not in said.by:
        why = said.reasons[0]
        return replace(by_rule, why=why), f"the rule from the local run answers: {why}"
    jobs = len(points.jobs)
    return (
        ModelForecast(ours, local, where, space.steps),
        f"the model learned from {int(points.ok.sum())} measured points of {jobs} other jobs answers:"
        f" {said.reasons[said.by.index(MODEL)]}",
    )


def check_method(method: str) -> None:
    """Refuse a method that nobody knows."""
    from trimtab.tune import METHODS

    names = list(dict.fromkeys([OURS, *METHODS]))
    if method not in names:
        raise NotFoundError(
            f'no method is called "{method}"{did_you_mean(method, names)}; there are {", ".join(names)}'
        )


def cases_of(space: JobSpace, data: DataSet) -> list[Case]:
    """What other jobs did on the same shapes; their smallest batch stands for this job's, and so on."""
    points = data.points
    names = {}
    for setup in space.setups:
        rank = sorted(space.job.batches).index(setup.batch)
        names[setup.shape.name, setup.workers, rank] = setup.name
    cases = []
    for job in points.jobs:
        if job == space.job.name:
            continue
        own = points.of(job)
        batches = sorted(set(own.where.batch.tolist()))
        keys = [
            (own.where.shape[row], int(own.where.workers[row]), batches.index(float(own.where.batch[row])))
            for row in range(len(own))
        ]
        own = own.only([key in names for key in keys])
        if not len(own):
            continue
        settings = own.where.settings()
        called = tuple(names[key] for key in keys if key in names)
        cases.append(
            Case("training", job, job, "", called, settings, metrics_table(len(own)), own.seconds, own.ok)
        )
    return cases
