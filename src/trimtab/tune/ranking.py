"""The configurations of a job of a SPEC, ranked by earlier measurements, without a new trial."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.collect import Spec, read_spec
from trimtab.core import (
    OBJECTIVES,
    BadInputError,
    Clock,
    Decision,
    Dropped,
    Goal,
    RealClock,
    format_bytes,
    format_duration,
    format_price,
    score,
    within_limits,
)
from trimtab.predict import MODEL, TRIAL, DataSet
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.job_source import JobSource, local_run
from trimtab.tune.job_space import JobSpace
from trimtab.tune.opinion import Opinion, Opinions, counted, refuse_hopeless, span
from trimtab.tune.searcher import LIKELY, Searcher
from trimtab.tune.state import Identity, earlier_trials
from trimtab.tune.trials import Trial, TrialWindow


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Opinions within the limits, best first; `others` are the jobs that were learned from."""

    space: JobSpace
    forecast: JobForecast
    opinions: Opinions
    goal: Goal
    rows: tuple[Opinion, ...]
    dropped: tuple[Dropped, ...]
    price_date: str
    others: DataSet
    decision: Decision

    @property
    def best(self) -> Opinion:
        """The recommended configuration."""
        return self.rows[0]

    @property
    def job(self) -> str:
        """The job's name."""
        return self.space.name

    def memory(self, row: Opinion) -> tuple[float, float]:
        """Bytes that a worker needs, and that its machine has."""
        return row.memory or 0.0, self.space.setups[row.row].shape.memory


def rank(
    source: JobSource, goal: Goal, tell: Callable[[str], None] = lambda news: None, clock: Clock | None = None
) -> Ranking:
    """The job's configurations by its trials so far, its local run and other jobs; the first is decided for.

    A local run is made if there is none.
    """
    score(goal.objective, np.ones(1), np.ones(1))  # refuses an unknown objective
    spec = read_spec(source.spec)
    space, trials = _space_and_trials(source, spec)
    if trials:
        tell(f"{source.job}: {counted(len(trials))} by trimtab tune")
    others = source.others()
    local = local_run(space.job, spec, others, tell)
    forecast = JobForecast.of(space.space, space.where, space.steps, local, others)
    tell(forecast.note)
    now = Opinions(space, Searcher(space.space, goal.objective, forecast), trials)
    refuse_hopeless(now, "fix that, and tune it again with another --state")
    time = np.array([opinion.time.value for opinion in now.ranked])
    cost = np.array([opinion.cost.value for opinion in now.ranked])
    within = within_limits(time, cost, goal, lambda place: now.ranked[place].setup.name)
    rows = tuple(now.ranked[place] for place in within.tolist())
    why = (
        f"{goal.objective}: the best of {len(space.setups)} configurations, by {now.rests_on(rows[0])};"
        f" {rows[0].why}"
    )
    limited = Opinions(space, now.searcher, trials, rows)
    decision = limited.decision("recommend", rows[0].row, "trimtab", why, (clock or RealClock()).now())
    dropped = tuple(_dropped(space, now, rows))
    return Ranking(space, forecast, now, goal, rows, dropped, spec.price_date, others, decision)


def _space_and_trials(source: JobSource, spec: Spec) -> tuple[JobSpace, tuple[Trial, ...]]:
    """The configurations that can be rented, and earlier trials of them.

    Machines to rent may be larger than this one, so that there are no trials of them. On an engine, only
    configurations count for which its nodes have room.
    """
    everything = JobSpace.of(spec, source.job, lambda setup: True)
    try:
        place, tried = source.place_and_space(spec, "cost")
    except BadInputError:
        if source.engine is not None or source.state is not None:
            raise
        return everything, ()
    window = TrialWindow(spec.window, spec.patience)
    identity = Identity.of_job(tried, "cost", place.name, window, spec.price_date)
    trials = earlier_trials(identity, source.state)
    return (everything if source.engine is None else tried), trials


def _dropped(space: JobSpace, now: Opinions, rows: tuple[Opinion, ...]) -> Iterator[Dropped]:
    """Reasons why configurations are not among the rows: failed trials, too little memory, limits."""
    ranked = {opinion.row for opinion in now.ranked}
    last = {trial.setup: trial for trial in now.trials}
    for trial in last.values():
        if not trial.ok:
            yield Dropped(1, f"{trial.setup} was tried, and {trial.reason or trial.status}")
    by_shape = dict[str, list[int]]()
    for row, setup in enumerate(space.setups):
        if row not in ranked and setup.name not in last:
            by_shape.setdefault(setup.shape.name, []).append(row)
    needed = now.searcher.knowledge.memory
    for name, short in by_shape.items():
        least = min(short, key=lambda row: needed(row) or 0.0)
        yield Dropped(
            len(short),
            f"{name} has {format_bytes(space.setups[least].shape.memory)} of memory, and a worker needs"
            f" about {format_bytes(needed(least) or 0.0)} at least;"
            f" below an even chance of running ({LIKELY:.0%})",
        )
    over = len(now.ranked) - len(rows)
    if over:
        yield Dropped(over, "over the deadline or the budget")


def explain_opinion(ranking: Ranking, rank: int) -> list[str]:
    """Lines that explain one row; rows count from 1."""
    row = ranking.rows[rank - 1]
    now, space = ranking.opinions, ranking.space
    setup, steps = space.setups[row.row], space.steps[row.row]
    rule, (need, limit) = now.by_rule(row.row), ranking.memory(row)
    return [
        f"Row {rank}: {setup.name}",
        f"  {space.job.length:,.0f} samples: {steps:,.0f} steps of {setup.batch * setup.workers:,},"
        f" {format_duration(row.time.value / float(steps))} each",
        f"  time {span(row.time)}, cost {span(row.cost)} at {format_price(setup.price_per_second)}"
        f" (prices of {ranking.price_date})",
        f"  {compared(ranking, row)}",
        f"  evidence: {row.evidence}, that is {now.rests_on(row)}; {row.why}",
        f"  rule: time {span(rule['time'])}, cost {span(rule['cost'])}",
        f"  memory: a worker needs about {format_bytes(need)} of {format_bytes(limit)}; {fits_words(row)}",
    ]


def compared(ranking: Ranking, row: Opinion) -> str:
    """Its cost and time against those of the first row."""
    best = ranking.best
    if row is best:
        return f"{OBJECTIVES[ranking.goal.objective][1]} of {len(ranking.rows)}"
    return (
        f"{row.cost.value / best.cost.value:.2f} times the cost of row 1,"
        f" {row.time.value / best.time.value:.2f} times its time"
    )


def evidence_detail(ranking: Ranking, row: Opinion) -> str:
    """Extent of the trial, number of jobs that the model learned from, or "local run" for the rule."""
    if row.evidence == TRIAL:
        return "full" if row.fidelity == 1 else "short"
    jobs = ranking.forecast.jobs
    return f"{jobs} other job{'' if jobs == 1 else 's'}" if row.evidence == MODEL else "local run"


def fits_words(row: Opinion) -> str:
    """Whether the memory suffices, in words."""
    return "it ran" if row.evidence == TRIAL else f"fits: {row.fits:.0%}"
