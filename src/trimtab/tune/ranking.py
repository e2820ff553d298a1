"""The configurations of a job of a SPEC, ranked by what is known of it already. No trial is made."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.collect import Spec, read_spec
from trimtab.core import (
    BadInputError,
    Clock,
    Decision,
    Dropped,
    Goal,
    RealClock,
    format_bytes,
    score,
    within_limits,
)
from trimtab.predict import DataSet
from trimtab.tune.forecast_search import LIKELY
from trimtab.tune.job_local import local_run
from trimtab.tune.job_source import JobSource
from trimtab.tune.job_space import JobSpace
from trimtab.tune.opinion import Opinion, Opinions, counted, refuse_hopeless
from trimtab.tune.prior import OURS, begin
from trimtab.tune.state import Identity, earlier_trials
from trimtab.tune.trial_decision import ranked_decision
from trimtab.tune.trials import Effort, Trial


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """All that may be rented within the limits, best first, what it rests on, and what was left out."""

    opinions: Opinions
    goal: Goal
    rows: tuple[Opinion, ...]
    dropped: tuple[Dropped, ...]
    price_date: str
    others: DataSet  # what was learned from
    decision: Decision

    @property
    def best(self) -> Opinion:
        """The recommended configuration."""
        return self.rows[0]

    @property
    def job(self) -> str:
        """The job's name."""
        return self.opinions.space.job.name


def rank(
    source: JobSource,
    goal: Goal,
    tell: Callable[[str], None] = lambda news: None,
    clock: Clock | None = None,
) -> Ranking:
    """The job's configurations by its trials so far, its local run and other jobs; the first is decided for.

    A local run is made if there is none.
    """
    score(goal.objective, np.ones(1), np.ones(1))  # refuses one that nobody knows
    spec = read_spec(source.spec)
    space, trials = _space_and_trials(source, spec)
    if trials:
        tell(f"{source.job}: {counted(len(trials))} by trimtab tune")
    others = source.others()
    local = local_run(space.job, spec, others, tell)
    prior = begin(OURS, space, goal.objective, local, others)
    tell(prior.note)
    now = Opinions(space, goal.objective, prior, trials)
    refuse_hopeless(now, "see to that, and tune it anew with another --state")
    rows = _within(now, goal)
    why = (
        f"{goal.objective}: the best of {len(space.setups)} configurations, by {now.rests_on(rows[0])};"
        f" {rows[0].why}"
    )
    made = ranked_decision(space.job.name, prior, rows, why, (clock or RealClock()).now())
    return Ranking(now, goal, rows, tuple(_dropped(now, rows)), spec.price_date, others, made)


def _space_and_trials(source: JobSource, spec: Spec) -> tuple[JobSpace, tuple[Trial, ...]]:
    """What can be rented, and the trials made of it.

    Machines to rent may be larger than this one, on which trials of them cannot have been made. On an engine
    nothing is rented for which its nodes have no room.
    """
    everything = JobSpace.of(spec, source.job, lambda setup: True)
    try:
        place, tried = source.place_and_space(spec, "cost")
    except BadInputError:
        if source.engine is not None or source.state is not None:
            raise
        return everything, ()
    identity = Identity.of(tried, "cost", place.name, Effort(spec.window, spec.patience), spec.price_date)
    trials = earlier_trials(identity, source.state)
    return (everything if source.engine is None else tried), trials


def _within(now: Opinions, goal: Goal) -> tuple[Opinion, ...]:
    time = np.array([each.time.value for each in now.ranked])
    cost = np.array([each.cost.value for each in now.ranked])
    kept = within_limits(time, cost, goal, lambda place: now.ranked[place].setup.name)
    return tuple(now.ranked[place] for place in kept.tolist())


def _dropped(now: Opinions, rows: tuple[Opinion, ...]) -> Iterator[Dropped]:
    """What is not among the rows: failed trials, too little memory, over the limits."""
    ranked = {each.row for each in now.ranked}
    last = {trial.setup: trial for trial in now.trials}
    failed = [trial for trial in last.values() if not trial.ok]
    for trial in failed:
        yield Dropped(1, f"{trial.setup} was tried, and {trial.reason or trial.status}")
    untried = [row for row in range(len(now.space.setups)) if row not in ranked]
    untried = [row for row in untried if now.space.setups[row].name not in last]
    by_shape = dict[str, list[int]]()
    for row in untried:
        by_shape.setdefault(now.space.setups[row].shape.name, []).append(row)
    for name, short in by_shape.items():
        least = min(short, key=lambda row: float(now.prior.rule_memory[row]))
        yield Dropped(
            len(short),
            f"{name} has {format_bytes(now.space.setups[least].shape.memory)} of memory, and a worker needs"
            f" about {format_bytes(float(now.prior.rule_memory[least]))} at least;"
            f" below an even chance of running ({LIKELY:.0%})",
        )
    over = len(now.ranked) - len(rows)
    if over:
        yield Dropped(over, "over the deadline or the budget")
