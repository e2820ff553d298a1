"""A tuning session: choose a trial, run it, believe something new, until another is not worth its price."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from trimtab.collect import Turn
from trimtab.core import BadInputError, Clock, Decision, RealClock, format_money
from trimtab.tune.job_space import JobSpace, Setup
from trimtab.tune.method import Choice, Stop
from trimtab.tune.opinion import Opinion, Opinions, refuse_hopeless
from trimtab.tune.prior import Prior
from trimtab.tune.state import StateFile
from trimtab.tune.trial_decision import trial_decision, tuned_decision
from trimtab.tune.trials import Effort, Place, Trial, try_out

_START = 15.0  # s until workers step, where no trial has shown it yet


class Ledger(Protocol):
    """Where decisions are written down, here or elsewhere; each comes back as it is kept."""

    def record(self, decision: Decision) -> Decision: ...

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str) -> object: ...


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
    decision: str  # its id, "" where it could not be kept

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

    def run(self, limits: Limits, tell: Callable[[Begun | Done], None] = lambda news: None) -> Tuned:
        """Go on until the trials or the budget are used up, or the gain to hope for is below the price."""
        self._place.clear()
        while not isinstance(choice := self._next(limits), Stop):
            self._try(choice, tell)
        now = self._now()
        refuse_hopeless(now, f"when that is seen to, begin anew with another --state than {self._state.path}")
        rests_on = now.rests_on(now.ranked[0])
        why = f"the best {self._objective} of {len(self._space.setups)} configurations, by {rests_on}"
        made = tuned_decision(self._space.job.name, self._prior, now.ranked, why, self._clock.now())
        decision = self._ledger.record(made)
        return Tuned(
            self._space, self._objective, now.trials, choice.reason, now.ranked, rests_on, decision.id
        )

    def _now(self) -> Opinions:
        return Opinions(self._space, self._objective, self._prior, self._state.trials)

    def _next(self, limits: Limits) -> Choice | Stop:
        now = self._now()
        if len(now.trials) >= limits.trials:
            return Stop(_used_up(limits.trials))
        choice = self._prior.search.next(now.seen)
        if isinstance(choice, Stop):
            return choice
        price = self._price(choice.row)
        left = limits.budget - sum(trial.price for trial in now.trials)
        if price > left:
            return Stop(
                f"another trial is expected to cost {format_money(price)}, and {format_money(max(0.0, left))}"
                f" of the budget is left"
            )
        return self._worth_its_price(choice, price, now.best)

    def _worth_its_price(self, choice: Choice, price: float, best: Opinion | None) -> Choice | Stop:
        """The gain is a part of the job's cost; time that is saved counts at the price of the machines."""
        if choice.expected_gain is None or best is None:
            return choice
        gain = choice.expected_gain * best.cost.value
        if gain >= price:
            return choice
        name = self._space.setups[choice.row].name
        saves = "saves" if self._objective == "cost" else "saves time worth"
        return Stop(
            f"the next trial would be {name}, which {saves} {format_money(gain)} of the whole job's"
            f" {format_money(best.cost.value)}, as far as one can expect, and costs {format_money(price)}"
        )

    def _try(self, choice: Choice, tell: Callable[[Begun | Done], None]) -> None:
        now, job, setup = self._now(), self._space.job, self._space.setups[choice.row]
        number = len(now.trials) + 1
        tell(Begun(number, setup, now.of(choice.row), self._price(choice.row), choice.reason))
        made = trial_decision(
            job.name, self._prior, choice.row, setup, now.ranked, choice.reason, self._clock.now()
        )
        decision = self._ledger.record(made)
        again = any(trial.setup == setup.name for trial in now.trials)  # then it was too short before

        def worth(turn: Turn) -> bool:
            return again or now.could_be_best(choice.row, turn)

        trial = try_out(self._place, job, setup, self._effort, worth)
        self._state.add(replace(trial, decision=decision.id))
        result = now.measured(trial)
        measured = {"time": result.time.value, "cost": result.cost.value} if result else {}
        note = f"a trial on {self._place.name}: {trial.reason or f'{trial.steps} steps'}"
        self._ledger.record_outcome(decision.id, measured, note)
        tell(Done(number, trial, result, self._now().best))

    def _price(self, row: int) -> float:
        """Dollars that a full trial is expected to cost."""
        window = self._effort.window
        took = [max(0.0, trial.seconds - trial.fidelity * window) for trial in self._state.trials]
        start = sum(took) / len(took) if took else _START
        return (start + window) * self._space.setups[row].price_per_second


def _used_up(trials: int) -> str:
    if trials == 0:
        return "no trials were asked for; this is what is predicted"
    return f"the {trials} trials that were allowed are made" if trials > 1 else "the one trial is made"
