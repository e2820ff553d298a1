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
from trimtab.tune.command_space import CommandSpace, CommandTrials, PricedSettings, SpaceSource
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.job_source import JobSource, local_run, local_run_file
from trimtab.tune.job_space import JobSpace, Setup
from trimtab.tune.opinion import Opinion, Opinions, refuse_hopeless
from trimtab.tune.other_workloads import OtherWorkloads
from trimtab.tune.searcher import STOP_BELOW, STOP_FROM, Choice, Searcher, Stop
from trimtab.tune.state import Identity, StateFile, Subject, open_state
from trimtab.tune.trials import EngineTrials, ThisMachine, Trial, TrialWindow, try_out

OBJECTIVES = ("cost", "time")
METHODS = ("trimtab", "random")
"""Trimtab's searcher, and trials drawn at random to compare it with."""

_START = 15.0  # s until workers step, where no trial has shown it yet


class DecisionRecorder(Protocol):
    """Keeps decisions and outcomes; `record` returns the decision with the id that it is kept under."""

    def record(self, decision: Decision) -> Decision: ...

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str) -> object: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Most trials, dollars and seconds for all of them, those of earlier calls included."""

    trials: int = 3
    budget: float = math.inf
    seconds: float = math.inf

    def __post_init__(self) -> None:
        limits = {"number of trials": self.trials, "budget": self.budget, "deadline": self.seconds}
        for name, value in limits.items():
            if not value >= 0:
                raise BadInputError(f"the {name} is {value:g}; it should be 0 or more")


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
    """A trial that is about to run: its expected result and price, and why it is chosen."""

    number: int
    setup: Setup | PricedSettings
    expected: Opinion | None
    price: float | None  # dollars; None where it cannot be foreseen
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """A trial that has run, its estimate for the whole workload, and the best configuration now."""

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

    task: JobSpace | CommandSpace
    objective: str
    trials: tuple[Trial, ...]
    stopped: str
    opinions: tuple[Opinion, ...]
    rests_on: str  # the evidence of the recommended configuration, in words
    decision: str  # id of the decision, "" where it could not be kept

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


@dataclass(frozen=True, slots=True)
class JobTrials:
    """Trials of a training job: short runs, from which the whole job is extrapolated.

    A trial is made only if it is expected to save more than it costs (`stops_by_price`).
    """

    space: JobSpace
    place: ThisMachine | EngineTrials
    window: TrialWindow

    stops_by_price = True

    @property
    def name(self) -> str:
        return self.place.name

    def run(self, row: int, worth: Callable[[Turn], bool]) -> Trial:
        """One trial; `worth` decides after a short run whether to run all of the window."""
        return try_out(self.place, self.space.job, self.space.setups[row], self.window, worth)

    def expected_seconds(self, row: int, trials: Sequence[Trial], expected: Opinion | None) -> float:
        """Expected duration of a trial."""
        window = self.window.seconds
        starts = [max(0.0, trial.seconds - trial.fidelity * window) for trial in trials]
        return window + (sum(starts) / len(starts) if starts else _START)

    def clear(self) -> None:
        self.place.clear()


class TuningSession:
    """The search for one task and one objective; its trials are kept in `state`."""

    def __init__(
        self,
        task: JobSpace | CommandSpace,
        searcher: Searcher,
        runner: JobTrials | CommandTrials,
        state: StateFile,
        ledger: DecisionRecorder,
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
        refuse_hopeless(now, f"when that is fixed, start again with another --state than {self._state.path}")
        rests_on = now.rests_on(now.ranked[0])
        objective = self._searcher.objective
        why = f"the best {objective} of {len(self._task.setups)} configurations, by {rests_on}"
        kept = self._ledger.record(
            now.decision("tune", now.ranked[0].row, self._method, why, self._clock.now())
        )
        return Tuned(self._task, objective, now.trials, choice.reason, now.ranked, rests_on, kept.id)

    def _now(self) -> Opinions:
        return Opinions(self._task, self._searcher, self._state.trials)

    def _next(self, limits: Limits) -> Choice | Stop:
        now = self._now()
        if len(now.trials) >= limits.trials:
            if limits.trials == 0:
                return Stop("no trials were allowed; these are predictions")
            many = limits.trials > 1
            return Stop(f"the {limits.trials} allowed trials are made" if many else "the one trial is made")
        choice = self._searcher.next(now.observations)
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
            f" {format_money(best.cost.value)} by expectation, and costs {format_money(price)}"
        )

    def _try(self, choice: Choice, tell: Tell) -> None:
        now, setup = self._now(), self._task.setups[choice.row]
        number, expected = len(now.trials) + 1, now.of(choice.row)
        seconds = self._runner.expected_seconds(choice.row, now.trials, expected)
        tell(Begun(number, setup, expected, self._price(choice.row, seconds), choice.reason))
        decision = self._ledger.record(
            now.decision("trial", choice.row, self._method, choice.reason, self._clock.now())
        )
        again = any(trial.setup == setup.name for trial in now.trials)  # its first trial was too short
        trial = self._runner.run(choice.row, lambda turn: again or now.could_be_best(choice.row, turn))
        self._state.add(replace(trial, decision=decision.id))
        result = now.measured(trial)
        measured = {"time": result.time.value, "cost": result.cost.value} if result else {}
        note = f"a trial on {self._runner.name}: {trial.reason or trial.extent}"
        self._ledger.record_outcome(decision.id, measured, note)
        tell(Done(number, trial, result, self._now().best))

    def _price(self, row: int, seconds: float | None) -> float | None:
        return None if seconds is None else seconds * self._task.setups[row].price_per_second


def tune_job(
    source: JobSource, options: TuneOptions, ledger: DecisionRecorder, tell: Tell = lambda news: None
) -> Tuned:
    """Try configurations of a job of a SPEC until another trial is not worth its price, and recommend one."""
    spec = read_spec(source.spec)
    window = TrialWindow(spec.window, spec.patience)
    place, space = source.place_and_space(spec, options.objective)
    others = source.others()
    identity = Identity.of_job(space, options.objective, place.name, window, spec.price_date)
    with open_state(identity, source.state) as state:
        _tell_earlier(state, tell)
        local = local_run(space.job, spec, others, tell)
        state.about(Subject(space.setups, space.job.length, spec.price_date, local_run_file(space.job).name))
        at_random = options.method == "random"
        forecast = JobForecast.of(space.space, space.where, space.steps, local, None if at_random else others)
        tell("trials are drawn at random" if at_random else forecast.note)
        searcher = Searcher(space.space, options.objective, forecast, at_random=at_random)
        session = TuningSession(space, searcher, JobTrials(space, place, window), state, ledger)
        return session.run(options.limits, tell)


def tune_space(
    source: SpaceSource,
    options: TuneOptions,
    ledger: DecisionRecorder,
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
        return TuningSession(space, searcher, CommandTrials(space), state, ledger).run(options.limits, tell)


def _tell_earlier(state: StateFile, tell: Tell) -> None:
    if state.trials:
        tell(f"going on with {len(state.trials)} earlier trials of {state.path}")
