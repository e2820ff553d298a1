"""Predict an application that ran one to three times under other configurations, with guard and reasons.

The rule answers when the request is unlike everything that was learned from, by its numbers or by its
embedding, when the rule won the backtest that is kept with the weights, or when the model's interval is too
wide. A request that is unlike everything but was run twice or more is answered by the encoder after fine-
tuning on those runs, if that predicts each of them from the others better than the rule does.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import (
    GIB,
    HOUR,
    Answer,
    Clock,
    Contribution,
    Decision,
    Estimate,
    RealClock,
    format_duration,
    format_money,
)
from trimtab.predict.fewshot.attribution import Attribution
from trimtab.predict.fewshot.blend import TRIMTAB, FittedBlend
from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.fine_tuning import Adapted, adapt, missed_by
from trimtab.predict.fewshot.foundation import Foundation, shipped_foundation
from trimtab.predict.fewshot.neighbourhood import Similarity
from trimtab.predict.fewshot.predictor import Fitted, Rows
from trimtab.predict.fewshot.request import PredictionRequest, make_request, read_request
from trimtab.predict.guard import MODEL, RULE, Ground, judge, lost_backtest, too_wide

# Lambda's list prices for x86 in US East before any discount or free tier.
LAMBDA_PER_GIB_SECOND = 0.0000166667  # dollars
LAMBDA_PER_REQUEST = 0.20 / 1e6  # dollars
LAMBDA_PRICES_OF = "2024"


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for every second of a run, and for the run itself however long it is."""

    per_second: float
    per_run: float = 0.0

    def cost(self, time: Estimate) -> Estimate:
        """Cost in dollars of a run of that time."""
        low, value, high = (
            seconds * self.per_second + self.per_run for seconds in (time.low, time.value, time.high)
        )
        return Estimate(value, low, high, time.coverage, "$")

    def parts(self, seconds: float) -> tuple[Contribution, ...]:
        """Parts of the cost of a run; a fee that is not charged has no part."""
        for_time = Contribution("time", seconds * self.per_second)
        return (for_time, Contribution("requests", self.per_run)) if self.per_run else (for_time,)


def prices(case: Case) -> list[Price | None]:
    """By configuration; None where nothing is charged or the price is not known."""
    if case.environment == "lambda":
        per_second = LAMBDA_PER_GIB_SECOND * case.setting("memory_bytes") / GIB
        return _each(per_second, LAMBDA_PER_REQUEST)
    return _each(case.setting("price_per_hour") * case.setting("nodes") / HOUR, 0.0)


def price_note(environment: str) -> str:
    """Where the prices come from and of when they are."""
    if environment == "lambda":
        return f"Lambda's list prices of {LAMBDA_PRICES_OF} in US East"
    return "prices of when the data learned from was measured"


def _each(per_second: Array, per_run: float) -> list[Price | None]:
    return [None if np.isnan(price) else Price(price, per_run) for price in per_second.tolist()]


_ENOUGH = 2  # known runs to fine-tune on
_FAR = 0.99  # part of the unseen applications that were nearer, in embedding space, to those learned from
_UNLIKE = 4.0  # standard deviations per known number, from the most alike application that was learned from


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """Both answers, in seconds for every configuration of the case, and who was chosen."""

    chosen_by: str  # "model" or "rule"
    reason: str
    model: Array
    low: Array
    high: Array
    rule: Array
    rule_name: str
    unlike: float  # how unlike anything learned from; above 4 the rule answers
    answering: Fitted  # who gave the chosen answer
    # Part of the unseen applications that were nearer to known ones; above 0.99 the rule answers.
    score: float | None = None
    alike: tuple[str, ...] = ()  # the known applications that are most alike

    @property
    def seconds(self) -> Array:
        """The chosen answer."""
        return self.model if self.chosen_by == "model" else self.rule


def guarded(fitted: FittedBlend, case: Case, known: Rows) -> Guarded:
    """Ask both, and choose."""
    low, model, high = fitted.interval(case, known)
    tested = _Backtest.of(fitted, len(known))
    rule = fitted.rules[tested.rule]
    by_rule = rule.predict(case, known)
    unlike = fitted.curves.unlikeness(case, known)
    found = fitted.similarity(case, known)
    far = _far(unlike, found)
    tuned = _fine_tuned(fitted, rule, case, known) if far else None
    verdict = judge(
        [
            Ground(MODEL, f"{far}, but {tuned.summary if tuned else ''}", tuned is not None),
            Ground(RULE, far, bool(far)),
            lost_backtest(tested.own_error, tested.rule_error, tested.summary),
            too_wide(_width(low, high, known)),
            Ground(MODEL, tested.summary),
        ]
    )
    answering: Fitted = fitted
    if tuned:
        answering, model = tuned.adapted, tuned.seconds
        low, high = np.minimum(low, tuned.low), np.maximum(high, tuned.high)
    elif verdict.chosen_by() == RULE:
        answering = rule
    if tuned or answering is rule:
        # Nobody can vouch for the answer: the range holds whatever anyone would say.
        low, high = np.minimum(low, by_rule), np.maximum(high, by_rule)
    score, alike = (found.score, found.alike) if found else (None, ())
    return Guarded(
        verdict.chosen_by(),
        verdict.why(),
        model,
        low,
        high,
        by_rule,
        tested.rule,
        unlike,
        answering,
        score,
        alike,
    )


def _far(unlike: float, found: Similarity | None) -> str:
    """Why it is like nothing that was learned from; nothing if it is."""
    if unlike > _UNLIKE:
        return f"nothing like this was learned from (unlikeness {unlike:.1f}, limit {_UNLIKE:g})"
    if found and found.score > _FAR:
        return (
            f"nothing like this was learned from: {found.score:.1%} of the applications nobody had seen were "
            f"nearer to known ones (limit {_FAR:.0%}), most alike is {found.alike[0]}"
        )
    return ""


def _width(low: Array, high: Array, known: Rows) -> float:
    targets = np.setdiff1d(np.arange(len(low)), known)
    return float(np.median((high / low)[targets])) if targets.size else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _FineTuned:
    """The encoder after a few steps on the request's own runs, which it predicts better than the rule."""

    adapted: Adapted
    seconds: Array
    low: Array
    high: Array
    summary: str


def _fine_tuned(fitted: FittedBlend, rule: Fitted, case: Case, known: Rows) -> _FineTuned | None:
    """Nothing where there is no encoder, too little to learn from, or the rule predicts the runs as well."""
    if fitted.shared is None or len(known) < _ENOUGH:
        return None
    adapted = adapt(fitted.shared.encoder, case, known)
    by_rule = missed_by(rule, case, known)
    if not adapted.missed < by_rule:
        return None
    spread = adapted.spread(case, known)
    tail = (1 - fitted.coverage) / 2
    return _FineTuned(
        adapted,
        adapted.predict(case, known),
        np.exp(spread.quantile(tail)),
        np.exp(spread.quantile(1 - tail)),
        f"fine-tuned on its own runs the encoder misses each from the others by "
        f"{math.expm1(adapted.missed):.0%}, the rule by {math.expm1(by_rule):.0%}",
    )


@dataclass(frozen=True, slots=True)
class _Backtest:
    """The rule that did best with as many known runs, and the mean errors of it and the model."""

    rule: str
    rule_error: float
    own_error: float

    @classmethod
    def of(cls, fitted: FittedBlend, runs: int) -> "_Backtest":
        """Where that many runs were not tested, the nearest below counts; a model never tested has lost."""
        shots = max((tested for tested in fitted.errors.get(TRIMTAB, {}) if tested <= runs), default=0)
        errors = {name: fitted.errors.get(name, {}).get(shots, math.inf) for name in fitted.rules}
        rule = min(errors, key=lambda name: errors[name])
        return cls(rule, errors[rule], fitted.errors[TRIMTAB][shots] if shots else math.inf)

    @property
    def summary(self) -> str:
        if math.isinf(self.own_error):
            return "the model was never tested on an application that it had not seen"
        return (
            f"in the backtest the model's mean error was {self.own_error:.0%}, "
            f"that of the best rule ({self.rule}) {self.rule_error:.0%}"
        )


@dataclass(frozen=True, slots=True)
class PredictedConfiguration:
    """One configuration: what a run would take and cost there; one that was run has no range."""

    configuration: str
    known: bool
    time: Estimate  # the chosen answer, in seconds
    cost: Estimate | None  # dollars; None where nothing is charged or the price is not known
    price: Price | None
    rule_seconds: float
    model_seconds: float


def prediction_lines(
    request: PredictionRequest, found: Guarded, coverage: float
) -> list[PredictedConfiguration]:
    """Every configuration of the request; those that were run have no range."""
    made = []
    run = set(request.known.tolist())
    for row, (configuration, price) in enumerate(zip(request.places, prices(request.case), strict=True)):
        known = row in run
        seconds = float(request.case.seconds[row] if known else found.seconds[row])
        low, high = (seconds, seconds) if known else (float(found.low[row]), float(found.high[row]))
        time = Estimate(seconds, min(low, seconds), max(high, seconds), coverage, "s")
        cost = price.cost(time) if price else None
        both = float(found.rule[row]), float(found.model[row])
        made.append(PredictedConfiguration(configuration, known, time, cost, price, *both))
    return made


def best_line(made: Sequence[PredictedConfiguration]) -> PredictedConfiguration:
    """The cheapest, or the fastest where something has no price."""
    priced = all_priced(made)
    return min(made, key=lambda line: line.cost.value if priced and line.cost else line.time.value)


def all_priced(made: Sequence[PredictedConfiguration]) -> bool:
    """Whether cost can decide."""
    return all(line.cost for line in made)


def attribution(request: PredictionRequest, found: Guarded) -> Attribution:
    """Attribution of the chosen answers, in seconds."""
    return Attribution(found.answering.predict, request.case, request.known, request.places)


def prediction_decision(
    request: PredictionRequest,
    found: Guarded,
    made: Sequence[PredictedConfiguration],
    parts: tuple[Contribution, ...] = (),
    clock: Clock | None = None,
) -> Decision:
    """The best configuration, made up of `parts`; the others are alternatives."""
    key = "memory" if request.of_function else "configuration"
    best = best_line(made)
    by_rule = best_line([_moved(line, line.rule_seconds) for line in made])
    by_model = best_line([_moved(line, line.model_seconds) for line in made])
    rule, model = (
        _decision_answer(key, by_rule, f"rule:{found.rule_name}"),
        _decision_answer(key, by_model, TRIMTAB),
    )
    chosen = model if found.chosen_by == "model" else rule
    what = "cheapest" if all_priced(made) else "fastest"
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="predict",
        subject=request.case.application,
        action={key: best.configuration},
        estimates=_estimates(best),
        chosen_by=chosen.who,
        rule=rule,
        model=model,
        alternatives=tuple(_decision_answer(key, line, chosen.who) for line in made if line is not best),
        reason=f"{what} of {len(made)} in {request.case.environment}; the {found.chosen_by}: {found.reason}",
        contributions=parts,
    )


def _moved(line: PredictedConfiguration, seconds: float) -> PredictedConfiguration:
    """The line as rule or model alone would have it; what was measured stays."""
    if line.known:
        return line
    time = Estimate(
        seconds, min(line.time.low, seconds), max(line.time.high, seconds), line.time.coverage, "s"
    )
    return replace(line, time=time, cost=line.price.cost(time) if line.price and line.cost else None)


def _decision_answer(key: str, line: PredictedConfiguration, who: str) -> Answer:
    seconds = float(f"{line.time.value:.4g}")
    return Answer(who, {key: line.configuration, "seconds": seconds}, _estimates(line))


def _estimates(line: PredictedConfiguration) -> dict[str, Estimate]:
    return {"time": line.time} | ({"cost": line.cost} if line.cost else {})


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """An application under every configuration that was asked for, and those where it ran."""

    request: PredictionRequest
    guarded: Guarded
    lines: tuple[PredictedConfiguration, ...]  # where it ran first, then as asked
    _attribution: Attribution

    @property
    def application(self) -> str:
        return self.request.case.application

    @property
    def environment(self) -> str:
        return self.request.case.environment

    @property
    def chosen_by(self) -> str:
        """ "model" or "rule", whichever answers."""
        return self.guarded.chosen_by

    @property
    def reason(self) -> str:
        """Why that one answers."""
        return self.guarded.reason

    @property
    def rule_name(self) -> str:
        """The rule that answers beside the model."""
        return self.guarded.rule_name

    @property
    def best(self) -> PredictedConfiguration:
        """The cheapest, or the fastest where something has no price."""
        return best_line(self.lines)

    @property
    def best_is(self) -> str:
        """ "cheapest" or "fastest", whichever the best is."""
        return "cheapest" if all_priced(self.lines) else "fastest"

    @property
    def ordered(self) -> tuple[PredictedConfiguration, ...]:
        """For reading: memory sizes from small to large, configurations from the best on."""
        if self.request.of_function:
            memory = self.request.case.setting("memory_bytes")
            return tuple(self.lines[row] for row in memory.argsort(kind="stable"))
        by_cost = all_priced(self.lines)
        return tuple(
            sorted(self.lines, key=lambda line: line.cost.value if by_cost and line.cost else line.time.value)
        )

    def at(self, where: str) -> PredictedConfiguration:
        """One configuration, such as "1024MB"."""
        return self.lines[self.request.row_of(where)]

    def contributions(self, where: str) -> tuple[Contribution, ...]:
        """Parts that add up to the predicted seconds; none where it was measured."""
        row = self.request.row_of(where)
        return () if self.lines[row].known else self._attribution.parts(row)

    def decision(self, clock: Clock | None = None) -> Decision:
        """The best configuration as a decision that a ledger can keep."""
        parts = self.contributions(self.best.configuration)
        return prediction_decision(self.request, self.guarded, self.lines, parts, clock)


def predict(
    told: Mapping[str, Any] | str | Path,
    at: str | Sequence[str] = "all",
    foundation: Foundation | None = None,
) -> Prediction:
    """Predict an application that ran one to three times under other sizes or configurations.

    `told` is a YAML or JSON file, or a mapping of the same form (a bare number is seconds or bytes). `at` are
    sizes or configurations, in a sequence or with commas between; "all" is every one that is known. Other
    weights than those that came along are a `foundation`. Nothing is written anywhere.
    """
    weights = foundation or shipped_foundation()
    wanted = at.split(",") if isinstance(at, str) else at
    places = [text.strip() for text in wanted if text.strip()]
    if isinstance(told, Mapping):
        request = make_request(told, places, weights)
    else:
        request = read_request(Path(told), places, weights)
    found = guarded(request.fitted, request.case, request.known)
    lines = tuple(prediction_lines(request, found, request.fitted.coverage))
    return Prediction(request, found, lines, attribution(request, found))


def signed(seconds: float) -> str:
    """A part of a time: "+81.3 ms", "-2 s"."""
    return ("-" if seconds < 0 else "+") + format_duration(abs(seconds))


def cost_scale(answer: Prediction) -> tuple[float, str]:
    """How many runs to price, and what to call them: one invocation costs too little to read."""
    return (1e6, "1M") if answer.request.of_function else (1.0, "a run")


def cost_words(dollars: float, answer: Prediction) -> str:
    """The cost of one run as people read it: "$2.06 for 1M"."""
    runs, what = cost_scale(answer)
    return f"{format_money(dollars * runs)} for {what}"


def likeness(answer: Prediction) -> str:
    """How unlike the known runs are to anything that was learned from: by their numbers and by embedding."""
    found = answer.guarded
    said = "Nothing that was learned from can be compared with it."
    if math.isfinite(found.unlike):
        said = f"It is {found.unlike:.1f} standard deviations from the most alike application learned from."
    if found.score is not None:
        alike = f"; most alike: {', '.join(found.alike)}" if found.alike else ""
        said += f" {found.score:.0%} of applications never seen were nearer to those learned from{alike}."
    return said


def explained(answer: Prediction, where: str) -> list[str]:
    """Why this time and this cost, a line for each part."""
    line = answer.at(where)
    time = format_duration(line.time.value)
    if line.known:
        lines = [f"{line.configuration} takes {time}, as measured"]
    else:
        parts = answer.contributions(where)
        width = max(len(part.name) for part in parts)
        lines = [f"{line.configuration} takes {time}:"]
        lines += [f"  {part.name:{width}}  {signed(part.value)}" for part in parts]
    if line.cost and line.price:
        runs, _ = cost_scale(answer)
        shares = [
            f"{format_money(part.value * runs)} for {part.name}" for part in line.price.parts(line.time.value)
        ]
        made_of = f": {', '.join(shares)}" if len(shares) > 1 else ""
        lines.append(f"  and costs {cost_words(line.cost.value, answer)}{made_of}")
        lines.append(f"  at {price_note(answer.environment)}")
    return lines
