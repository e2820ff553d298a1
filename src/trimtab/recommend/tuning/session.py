"""A tuning session: choose a trial, run it, believe something new, until another is not worth its price."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from trimtab.core import BadInputError, Clock, Decision, Estimate, Outcome, RealClock
from trimtab.core.units import format_money
from trimtab.observe.shapes import OK, OUT_OF_MEMORY, Turn
from trimtab.predict.fewshot import Array
from trimtab.predict.training import MODEL, RULE, TRIAL
from trimtab.recommend.tuning.forecast_search import LIKELY, Forecasted
from trimtab.recommend.tuning.job_space import JobSpace, Setup
from trimtab.recommend.tuning.method import Choice, Stop
from trimtab.recommend.tuning.observation import Observation
from trimtab.recommend.tuning.opinion import Opinion
from trimtab.recommend.tuning.prior import COVERAGE, Prior
from trimtab.recommend.tuning.state import StateFile
from trimtab.recommend.tuning.trial_decision import trial_decision, tuned_decision
from trimtab.recommend.tuning.trials import Effort, Place, Trial, standard_error, try_out

_START = 15.0  # s until workers step, where no trial has shown it yet
_TRIAL_NOISE = 0.03  # of a full trial, over the truth: two of the same configuration differ about so much
_WIDTH = 1.645  # standard deviations on each side of 90 %


class Ledger(Protocol):
    """Where decisions are written down."""

    def record(self, decision: Decision) -> None: ...

    def record_outcome(self, outcome: Outcome) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """At most so many trials, at most so many dollars for all of them."""

    trials: int = 3
    budget: float = math.inf

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise BadInputError(f"{self.trials} trials cannot be made; 0 only predicts")
        if not self.budget >= 0:
            raise BadInputError(f"a budget of {self.budget:g} dollars cannot be spent; it is 0 or more")


@dataclass(frozen=True, slots=True)
class Begun:
    """A trial that is about to run: what is expected of it, what it should cost, and why it."""

    number: int
    setup: Setup
    expected: Opinion | None
    price: float
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """A trial that has run, what the whole job would take and cost there, and what now seems best."""

    number: int
    trial: Trial
    result: Opinion | None
    best: Opinion | None


@dataclass(frozen=True, slots=True)
class Tuned:
    """How a session ended: why, what it recommends, and what it thinks of the rest, best first."""

    space: JobSpace
    objective: str
    trials: tuple[Trial, ...]
    stopped: str
    opinions: tuple[Opinion, ...]
    rests_on: str  # what the recommended configuration's numbers come from
    decision: str

    @property
    def best(self) -> Opinion:
        """The recommended configuration."""
        return self.opinions[0]

    @property
    def spent(self) -> float:
        """Dollars of all trials."""
        return sum(trial.price for trial in self.trials)


class Session:
    """One job, one objective, one place to try things; what it finds is in its state."""

    def __init__(
        self,
        space: JobSpace,
        objective: str,
        prior: Prior,
        place: Place,
        effort: Effort,
        state: StateFile,
        ledger: Ledger,
        clock: Clock | None = None,
    ) -> None:
        self._space, self._objective, self._prior = space, objective, prior
        self._place, self._effort, self._state, self._ledger = place, effort, state, ledger
        self._clock = clock or RealClock()
        self._rows = {setup.name: row for row, setup in enumerate(space.setups)}

    def run(self, limits: Limits, tell: Callable[[Begun | Done], None] = lambda news: None) -> Tuned:
        """Go on until the trials or the budget are used up, or the gain to hope for is below the price."""
        self._place.clear()
        while not isinstance(choice := self._next(limits), Stop):
            self._try(choice, tell)
        opinions = self._opinions_or_why_none()
        rests_on = self._rests_on(opinions[0])
        why = f"the best {self._objective} of {len(self._space.setups)} configurations, by {rests_on}"
        job, now = self._space.job.name, self._clock.now()
        decision = tuned_decision(job, self._prior, opinions, why, now)
        self._ledger.record(decision)
        trials = self._state.trials
        return Tuned(self._space, self._objective, trials, choice.reason, opinions, rests_on, decision.id)

    def _next(self, limits: Limits) -> Choice | Stop:
        trials = self._state.trials
        if len(trials) >= limits.trials:
            return Stop(_used_up(limits.trials))
        choice = self._prior.search.next(self._seen())
        if isinstance(choice, Stop):
            return choice
        price = self._price(choice.row)
        left = limits.budget - sum(trial.price for trial in trials)
        if price > left:
            return Stop(
                f"another trial is expected to cost {format_money(price)}, and {format_money(max(0.0, left))}"
                f" of the budget is left"
            )
        return self._worth_its_price(choice, price)

    def _worth_its_price(self, choice: Choice, price: float) -> Choice | Stop:
        best = self._best()
        if choice.expected_gain is None or best is None:
            return choice
        gain = choice.expected_gain * best.cost.value
        if gain >= price:
            return choice
        name = self._space.setups[choice.row].name
        dear = "saves" if self._objective == "cost" else "saves time worth"
        return Stop(
            f"the next trial would be {name}, which {dear} {format_money(gain)} of the whole job's"
            f" {format_money(best.cost.value)}, as far as one can expect, and costs {format_money(price)}"
        )

    def _try(self, choice: Choice, tell: Callable[[Begun | Done], None]) -> None:
        number, setup = len(self._state.trials) + 1, self._space.setups[choice.row]
        opinions = self._opinions()
        expected = next((each for each in opinions if each.row == choice.row), None)
        tell(Begun(number, setup, expected, self._price(choice.row), choice.reason))
        decision = trial_decision(
            self._space.job.name, self._prior, choice.row, setup, opinions, choice.reason, self._clock.now()
        )
        self._ledger.record(decision)
        full = any(trial.setup == setup.name for trial in self._state.trials)
        trial = try_out(
            self._place,
            self._space.job,
            setup,
            self._effort,
            lambda turn: full or self._could_be_best(choice.row, turn),
        )
        trial = replace(trial, decision=decision.id)
        self._state.add(trial)
        result = self._measured(trial)
        measured = {"time": result.time.value, "cost": result.cost.value} if result else {}
        note = f"a trial on {self._place.name}: {trial.reason or f'{trial.steps} steps'}"
        self._ledger.record_outcome(Outcome(decision.id, self._clock.now(), measured, note))
        tell(Done(number, trial, result, self._best()))

    def _could_be_best(self, row: int, turn: Turn) -> bool:
        """Whether the truth behind a short look may lie below all that is known or as good as certain."""
        seconds = turn.step_seconds * float(self._space.steps[row])
        lowest = seconds * (1 - _WIDTH * _noise(standard_error([turn])))
        value = float(self._space.space.values(self._objective, [lowest], np.array([row]))[0])
        others = [self._value(each.time.high, each.row) for each in self._opinions() if each.row != row]
        return value <= min(others, default=math.inf)

    def _seen(self) -> list[Observation]:
        """The last look at every configuration that was tried.

        Methods that know no difference between a short look and a full one would go on asking for the same.
        """
        knows_short = self._prior.forecast is not None
        last = dict[int, Observation]()
        for trial in self._state.trials:
            row = self._rows[trial.setup]
            seconds = trial.step_seconds * float(self._space.steps[row]) if trial.step_seconds else math.nan
            full = {"memory_fraction": 1.0} if trial.status == OUT_OF_MEMORY else {}
            fidelity = trial.fidelity if knows_short else 1.0
            last[row] = Observation(row, seconds, trial.ok, fidelity, full)
        return list(last.values())

    def _price(self, row: int) -> float:
        """Dollars that a full trial is expected to cost."""
        looked = [(trial.seconds, trial.fidelity * self._effort.window) for trial in self._state.trials]
        took = [max(0.0, seconds - window) for seconds, window in looked]
        start = sum(took) / len(took) if took else _START
        return (start + self._effort.window) * self._space.setups[row].price_per_second

    def _best(self) -> Opinion | None:
        return next(iter(self._opinions()), None)

    def _opinions(self) -> list[Opinion]:
        """All that is known or believed, best first: of what was tried the trial, of the rest the prior."""
        seen = self._seen()
        known = {self._rows[trial.setup]: trial for trial in self._state.trials if trial.ok}
        failed = {one.row for one in seen if not one.ok}
        measured = [each for trial in known.values() if (each := self._measured(trial)) is not None]
        measured = [each for each in measured if each.row not in failed]
        believed = self._prior.believed(self._space, self._objective, seen)
        likely = np.flatnonzero(believed.runs >= LIKELY).tolist()
        guessed = [self._guess(row, believed) for row in likely if row not in known and row not in failed]
        return sorted(measured + guessed, key=lambda each: (self._value(each.time.value, each.row), each.row))

    def _guess(self, row: int, believed: Forecasted) -> Opinion:
        low, value, high = (float(each[row]) for each in (believed.low, believed.value, believed.high))
        time = Estimate(value, min(low, value), max(high, value), COVERAGE, "s")
        return self._opinion(row, time, believed.by[row])

    def _opinion(self, row: int, time: Estimate, evidence: str) -> Opinion:
        setup = self._space.setups[row]
        return Opinion(row, setup, time, time.scaled(setup.price_per_second, "$"), evidence)

    def _opinions_or_why_none(self) -> tuple[Opinion, ...]:
        """What to choose from. A job that fails wherever it is tried is not recommended anywhere."""
        trials, opinions = self._state.trials, tuple(self._opinions())
        broken = [trial for trial in trials if trial.status not in (OK, OUT_OF_MEMORY)]
        if broken and not any(trial.ok for trial in trials):
            last = broken[-1]
            raise BadInputError(
                f"no trial completed, {last.setup} because {last.reason}; "
                f"when that is seen to, begin anew with another --state than {self._state.path}"
            )
        if not opinions:
            raise BadInputError(
                f"none of the {len(self._space.setups)} configurations is expected to have the memory that a"
                " worker needs; name larger shapes in the SPEC"
            )
        return opinions

    def _measured(self, trial: Trial) -> Opinion | None:
        """What a trial says of the whole job."""
        if not trial.ok or trial.step_seconds is None:
            return None
        row = self._rows[trial.setup]
        seconds = trial.step_seconds * float(self._space.steps[row])
        off = _WIDTH * _noise(trial.off or 0.0)
        time = Estimate(seconds, seconds * (1 - off), seconds * (1 + off), COVERAGE, "s")
        return self._opinion(row, time, TRIAL)

    def _rests_on(self, best: Opinion) -> str:
        trials = [trial for trial in self._state.trials if trial.ok]
        own = [trial for trial in trials if trial.setup == best.setup.name]
        if own:
            return f"a trial of it, {own[-1].steps} steps long"
        sources = {
            RULE: "the rule from its local run",
            MODEL: "the model from its local run and other jobs",
        }
        tried = f", moved by {len(trials)} trials elsewhere" if trials else ""
        return f"{sources[best.evidence]}{tried}"

    def _value(self, seconds: float, row: int) -> float:
        values: Array = self._space.space.values(self._objective, [seconds], np.array([row]))
        return float(values[0])


def _noise(off: float) -> float:
    """How far a trial may be from the truth, as a standard deviation over it; at most half of it."""
    return min(0.5, math.hypot(_TRIAL_NOISE, off))


def _used_up(trials: int) -> str:
    if trials == 0:
        return "no trials were asked for; this is what is predicted"
    return f"the {trials} trials that were allowed are made" if trials > 1 else "the one trial is made"
