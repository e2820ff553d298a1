"""A tuning session: choose a trial, run it, learn from it, until another one is not worth its price."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from trimtab.collect import Turn, read_spec
from trimtab.core import (
    BadInputError,
    Clock,
    Decision,
    NotFoundError,
    RealClock,
    did_you_mean,
    format_duration,
    format_money,
)
from trimtab.tune.command_space import CommandTrials, SpaceSource
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.job_source import JobSource, local_run, local_run_file
from trimtab.tune.job_space import JobSpace
from trimtab.tune.opinion import Candidate, Opinion, Opinions, Task, refuse_hopeless
from trimtab.tune.other_workloads import OtherWorkloads
from trimtab.tune.searcher import STOP_BELOW, STOP_FROM, Choice, Searcher, Stop
from trimtab.tune.state import Identity, StateFile, Subject, open_state
from trimtab.tune.trials import Effort, Place, Trial, try_out

OBJECTIVES = ("cost", "time")
METHODS = ("trimtab", "random")
"""Trimtab's searcher, and trials drawn at random to compare it with."""

_START = 15.0  # s until workers step, where no trial has shown it yet


class Ledger(Protocol):
    """Where decisions and outcomes are kept; a decision comes back with the id under which it is kept."""

    def record(self, decision: Decision) -> Decision: ...

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str) -> object: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """At most so many trials, dollars and seconds for all of them, those of earlier calls included."""

    trials: int = 3
    budget: float = math.inf
    seconds: float = math.inf

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise BadInputError(f"{self.trials} trials cannot be made; 0 only predicts")
        if not self.budget >= 0:
            raise BadInputError(f"a budget of {self.budget:g} dollars cannot be spent; it is 0 or more")
        if not self.seconds >= 0:
            raise BadInputError(f"a deadline of {self.seconds:g} s cannot be met; it is 0 or more")


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """The objective, the limits and the method of a session."""

    objective: str = "cost"
    limits: Limits = field(default_factory=Limits)
    method: str = METHODS[0]

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            near = did_you_mean(self.objective, OBJECTIVES)
            raise BadInputError(
                f'the objective is "{self.objective}"{near}; it should be one of {", ".join(OBJECTIVES)}'
            )
        if self.method not in METHODS:
            near = did_you_mean(self.method, METHODS)
            raise NotFoundError(f'no method is called "{self.method}"{near}; there are {", ".join(METHODS)}')


@dataclass(frozen=True, slots=True)
class Begun:
    """A trial that is about to run: what is expected of it, what it should cost, and why it is chosen."""

    number: int
    setup: Candidate
    expected: Opinion | None
    price: float | None  # dollars; None where it cannot be foreseen
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """A trial that has run, the whole workload there by it, and the best configuration now."""

    number: int
    trial: Trial
    result: Opinion | None
    best: Opinion | None


News = str | Begun | Done
"""Progress: a sentence, a trial that begins, a trial that is done."""
Tell = Callable[[News], None]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The end of a session: why it ended, and its opinions, best first."""

    task: Task
    objective: str
    trials: tuple[Trial, ...]
    stopped: str
    opinions: tuple[Opinion, ...]
    rests_on: str  # where the recommended configuration's numbers come from
    decision: str  # its id, "" where it could not be kept

    @property
    def best(self) -> Opinion:
        """The recommended configuration."""
        return self.opinions[0]

    @property
    def spent(self) -> float:
        """Dollars of all trials."""
        return sum(trial.price for trial in self.trials)

    @property
    def is_job(self) -> bool:
        """Whether it is a training job, which a trial runs for a few steps."""
        return isinstance(self.task, JobSpace)


class TrialRunner(Protocol):
    """Runs trials of a task's configurations."""

    @property
    def name(self) -> str:
        """The place where they run."""
        ...

    @property
    def stops_by_price(self) -> bool:
        """Whether a trial is made only if it is expected to save more than it costs."""
        ...

    def run(self, row: int, worth: Callable[[Turn], bool]) -> Trial:
        """One trial; `worth` says after a short look whether to run all of it."""
        ...

    def expected_seconds(self, row: int, trials: Sequence[Trial], expected: Opinion | None) -> float | None:
        """How long a trial will take; None where that cannot be foreseen."""
        ...

    def clear(self) -> None:
        """End what a killed session has left running."""
        ...


@dataclass(frozen=True, slots=True)
class JobTrials:
    """Trials of a training job: short runs, of which the whole job is extrapolated."""

    space: JobSpace
    place: Place
    effort: Effort

    stops_by_price = True

    @property
    def name(self) -> str:
        return self.place.name

    def run(self, row: int, worth: Callable[[Turn], bool]) -> Trial:
        return try_out(self.place, self.space.job, self.space.setups[row], self.effort, worth)

    def expected_seconds(self, row: int, trials: Sequence[Trial], expected: Opinion | None) -> float:
        window = self.effort.window
        starts = [max(0.0, trial.seconds - trial.fidelity * window) for trial in trials]
        return window + (sum(starts) / len(starts) if starts else _START)

    def clear(self) -> None:
        self.place.clear()


class Session:
    """One task, one objective; its trials are kept in its state."""

    def __init__(
        self,
        task: Task,
        searcher: Searcher,
        runner: TrialRunner,
        state: StateFile,
        ledger: Ledger,
        clock: Clock | None = None,
    ) -> None:
        self._task, self._searcher, self._runner = task, searcher, runner
        self._state, self._ledger = state, ledger
        self._clock = clock or RealClock()
        self._method = "random" if searcher.at_random else "trimtab"

    def run(self, limits: Limits, tell: Tell = lambda news: None) -> Tuned:
        """Make trials until a limit is reached or the expected gain is below the price; then recommend."""
        self._runner.clear()
        while not isinstance(choice := self._next(limits), Stop):
            self._try(choice, tell)
        now = self._now()
        refuse_hopeless(now, f"when that is seen to, begin anew with another --state than {self._state.path}")
        rests_on = now.rests_on(now.ranked[0])
        objective = self._searcher.objective
        why = f"the best {objective} of {len(self._task.setups)} configurations, by {rests_on}"
        made = now.decision("tune", now.ranked[0].row, self._method, why, self._clock.now())
        kept = self._ledger.record(made)
        return Tuned(self._task, objective, now.trials, choice.reason, now.ranked, rests_on, kept.id)

    def _now(self) -> Opinions:
        return Opinions(self._task, self._searcher, self._state.trials)

    def _next(self, limits: Limits) -> Choice | Stop:
        now = self._now()
        if len(now.trials) >= limits.trials:
            return Stop(_used_up(limits.trials))
        choice = self._searcher.next(now.seen)
        if isinstance(choice, Stop):
            return choice
        seconds = self._runner.expected_seconds(choice.row, now.trials, now.of(choice.row))
        price = self._price(choice.row, seconds) or 0.0
        left = limits.budget - sum(trial.price for trial in now.trials)
        if price > left or left <= 0:
            return Stop(
                f"another trial is expected to cost {format_money(price)}, and {format_money(max(0.0, left))}"
                f" of the budget is left"
            )
        time = limits.seconds - sum(trial.seconds for trial in now.trials)
        if (seconds or 0.0) > time or time <= 0:
            return Stop(
                f"another trial is expected to take {format_duration(seconds or 0.0)}, and"
                f" {format_duration(max(0.0, time))} are left until the deadline"
            )
        return self._worth_its_price(choice, price, now.best) if self._runner.stops_by_price else choice

    def _worth_its_price(self, choice: Choice, price: float, best: Opinion | None) -> Choice | Stop:
        """The gain is a part of the workload's cost; saved time counts at the price of the machines."""
        if choice.expected_gain is None or best is None or self._searcher.at_random:
            return choice
        gain = choice.expected_gain * best.cost.value
        if gain >= price:
            return choice
        name = self._task.setups[choice.row].name
        saves = "saves" if self._searcher.objective == "cost" else "saves time worth"
        return Stop(
            f"the next trial would be {name}, which {saves} {format_money(gain)} of the whole job's"
            f" {format_money(best.cost.value)}, as far as one can expect, and costs {format_money(price)}"
        )

    def _try(self, choice: Choice, tell: Tell) -> None:
        now, setup = self._now(), self._task.setups[choice.row]
        number, expected = len(now.trials) + 1, now.of(choice.row)
        seconds = self._runner.expected_seconds(choice.row, now.trials, expected)
        tell(Begun(number, setup, expected, self._price(choice.row, seconds), choice.reason))
        made = now.decision("trial", choice.row, self._method, choice.reason, self._clock.now())
        decision = self._ledger.record(made)
        again = any(trial.setup == setup.name for trial in now.trials)  # then it was too short before
        trial = self._runner.run(choice.row, lambda turn: again or now.could_be_best(choice.row, turn))
        self._state.add(replace(trial, decision=decision.id))
        result = now.measured(trial)
        measured = {"time": result.time.value, "cost": result.cost.value} if result else {}
        note = f"a trial on {self._runner.name}: {trial.reason or trial.extent}"
        self._ledger.record_outcome(decision.id, measured, note)
        tell(Done(number, trial, result, self._now().best))

    def _price(self, row: int, seconds: float | None) -> float | None:
        return None if seconds is None else seconds * self._task.setups[row].price_per_second


def _used_up(trials: int) -> str:
    if trials == 0:
        return "no trials were asked for; this is what is predicted"
    return f"the {trials} trials that were allowed are made" if trials > 1 else "the one trial is made"


def tune_job(
    source: JobSource, options: TuneOptions, ledger: Ledger, tell: Tell = lambda news: None
) -> Tuned:
    """Try configurations of a job of a SPEC until that is not worth its price, and recommend one."""
    spec = read_spec(source.spec)
    effort = Effort(spec.window, spec.patience)
    place, space = source.place_and_space(spec, options.objective)
    others = source.others()
    identity = Identity.of_job(space, options.objective, place.name, effort, spec.price_date)
    with open_state(identity, source.state) as state:
        _tell_earlier(state, tell)
        local = local_run(space.job, spec, others, tell)
        state.about(Subject(space.setups, space.job.length, spec.price_date, local_run_file(space.job).name))
        at_random = options.method == "random"
        forecast = JobForecast.of(space.space, space.where, space.steps, local, None if at_random else others)
        tell("trials are drawn at random, to compare with" if at_random else forecast.note)
        searcher = Searcher(space.space, options.objective, forecast, at_random=at_random)
        session = Session(space, searcher, JobTrials(space, place, effort), state, ledger)
        return session.run(options.limits, tell)


def tune_space(
    source: SpaceSource,
    options: TuneOptions,
    ledger: Ledger,
    state_file: Path | None = None,
    tell: Tell = lambda news: None,
) -> Tuned:
    """Measure configurations of any space with its command, and recommend the best."""
    space = source.read()
    others = source.others(space, tell)
    identity = Identity.of(space.name, options.objective, CommandTrials.name, space.identity)
    with open_state(identity, state_file) as state:
        _tell_earlier(state, tell)
        at_random = options.method == "random"
        knowledge = OtherWorkloads(space.space, () if at_random else others)
        searcher = Searcher(
            space.space,
            options.objective,
            knowledge,
            stop_below=STOP_BELOW,
            least_trials=STOP_FROM,
            at_random=at_random,
        )
        return Session(space, searcher, CommandTrials(space), state, ledger).run(options.limits, tell)


def _tell_earlier(state: StateFile, tell: Tell) -> None:
    if state.trials:
        tell(f"going on with {len(state.trials)} earlier trials of {state.path}")
