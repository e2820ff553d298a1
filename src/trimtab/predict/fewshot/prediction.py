"""Predict an application that ran one to three times under other configurations, with guard and reasons.

The rule answers when the request is unlike everything that was learned from, by its numbers or by its
embedding, when the rule won the backtest that is stored with the weights, or when the model's interval is too
wide. A request that is unlike everything but was run twice or more is answered by the encoder after
fine-tuning on those runs, if that predicts each of them from the others better than the rule does.
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
    """Prices by configuration; None where nothing is charged or the price is not known."""
    per_second, per_run = case.setting("price_per_hour") * case.setting("nodes") / HOUR, 0.0
    if case.environment == "lambda":
        per_second, per_run = LAMBDA_PER_GIB_SECOND * case.setting("memory_bytes") / GIB, LAMBDA_PER_REQUEST
    return [None if np.isnan(price) else Price(price, per_run) for price in per_second.tolist()]


def price_note(environment: str) -> str:
    if environment == "lambda":
        return f"Lambda's list prices of {LAMBDA_PRICES_OF} in US East"
    return "prices of when the data learned from was measured"


_ENOUGH = 2  # known runs to fine-tune on
_FAR = 0.99  # part of the unseen applications that were nearer, in embedding space, to those learned from
_UNLIKE = 4.0  # standard deviations per known number, from the most alike application that was learned from


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """Both answers, in seconds for every configuration of the case, and the guard's choice."""

    chosen_by: str  # MODEL or RULE
    reason: str
    model: Array
    low: Array
    high: Array
    rule: Array
    rule_name: str
    unlike: float  # unlikeness to everything learned from; above 4 the rule answers
    answering: Fitted  # the predictor that gave the chosen answer
    score: float | None = (
        None  # share of held-out applications nearer to known ones; above 0.99 the rule answers
    )
    alike: tuple[str, ...] = ()  # the known applications that are most alike

    @property
    def seconds(self) -> Array:
        return self.model if self.chosen_by == MODEL else self.rule


def guarded(fitted: FittedBlend, case: Case, known: Rows) -> Guarded:
    """Answers of model and best rule, and the guard's choice between them."""
    low, model, high = fitted.interval(case, known)
    # Where so many runs were not tested, the nearest number below counts; a model never tested has lost.
    shots = max((tested for tested in fitted.errors.get(TRIMTAB, {}) if tested <= len(known)), default=0)
    errors = {name: fitted.errors.get(name, {}).get(shots, math.inf) for name in fitted.rules}
    rule_name = min(errors, key=lambda name: errors[name])
    own_error = fitted.errors[TRIMTAB][shots] if shots else math.inf
    tested = "the model was never tested on an application that it was not fitted to"
    if shots:
        tested = (
            f"in the backtest the model's mean error was {own_error:.0%}, "
            f"that of the best rule ({rule_name}) {errors[rule_name]:.0%}"
        )
    rule = fitted.rules[rule_name]
    by_rule = rule.predict(case, known)
    unlike = fitted.curves.unlikeness(case, known)
    similarity = fitted.similarity(case, known)
    far = ""
    if unlike > _UNLIKE:
        far = f"nothing like this was learned from (unlikeness {unlike:.1f}, limit {_UNLIKE:g})"
    elif similarity and similarity.score > _FAR:
        far = (
            f"nothing like this was learned from: {similarity.score:.1%} of held-out applications were "
            f"nearer to known ones (limit {_FAR:.0%}), most alike is {similarity.alike[0]}"
        )
    tuned, summary = _fine_tuned(fitted, rule, case, known) if far else (None, "")
    targets = np.setdiff1d(np.arange(len(case)), known)
    verdict = judge(
        [
            Ground(MODEL, f"{far}, but {summary}", tuned is not None),
            Ground(RULE, far, bool(far)),
            lost_backtest(own_error, errors[rule_name], tested),
            too_wide(float(np.median((high / low)[targets])) if targets.size else 1.0),
            Ground(MODEL, tested),
        ]
    )
    answering: Fitted = fitted if verdict.chosen_by() == MODEL else rule
    if tuned:
        answering, model = tuned, tuned.predict(case, known)
        tail, sample = (1 - fitted.coverage) / 2, tuned.spread(case, known)
        low = np.minimum(low, np.exp(sample.quantile(tail)))
        high = np.maximum(high, np.exp(sample.quantile(1 - tail)))
    if answering is not fitted:
        # No backtest supports the answer: the interval holds all answers.
        low, high = np.minimum(low, by_rule), np.maximum(high, by_rule)
    score, alike = (similarity.score, similarity.alike) if similarity else (None, ())
    return Guarded(
        verdict.chosen_by(),
        verdict.why(),
        model,
        low,
        high,
        by_rule,
        rule_name,
        unlike,
        answering,
        score,
        alike,
    )


def _fine_tuned(fitted: FittedBlend, rule: Fitted, case: Case, known: Rows) -> tuple[Adapted | None, str]:
    """The encoder fine-tuned on the request's runs, and its errors; None unless it beats the rule on them."""
    if fitted.shared is None or len(known) < _ENOUGH:
        return None, ""
    adapted = adapt(fitted.shared.encoder, case, known)
    by_rule = missed_by(rule, case, known)
    if not adapted.missed < by_rule:
        return None, ""
    return adapted, (
        f"fine-tuned on its own runs the encoder misses each from the others by "
        f"{math.expm1(adapted.missed):.0%}, the rule by {math.expm1(by_rule):.0%}"
    )


@dataclass(frozen=True, slots=True)
class PredictedConfiguration:
    """Time and cost of a run under one configuration; one that was run has no interval."""

    configuration: str
    known: bool
    time: Estimate  # the chosen answer, in seconds
    cost: Estimate | None  # dollars; None where nothing is charged or the price is not known
    price: Price | None
    rule_seconds: float
    model_seconds: float


def prediction_lines(
    request: PredictionRequest, answer: Guarded, coverage: float
) -> list[PredictedConfiguration]:
    """Every configuration of the request; those that were run have no interval."""
    lines = []
    for row, (configuration, price) in enumerate(zip(request.places, prices(request.case), strict=True)):
        known = row in request.known
        seconds = float(request.case.seconds[row] if known else answer.seconds[row])
        low, high = (seconds, seconds) if known else (float(answer.low[row]), float(answer.high[row]))
        time = Estimate(seconds, min(low, seconds), max(high, seconds), coverage, "s")
        cost = price.cost(time) if price else None
        both = float(answer.rule[row]), float(answer.model[row])
        lines.append(PredictedConfiguration(configuration, known, time, cost, price, *both))
    return lines


def ranked(lines: Sequence[PredictedConfiguration]) -> list[PredictedConfiguration]:
    """From the cheapest on, or from the fastest on where a line has no price."""
    priced = all(line.cost for line in lines)
    return sorted(lines, key=lambda line: line.cost.value if priced and line.cost else line.time.value)


def prediction_decision(
    request: PredictionRequest,
    answer: Guarded,
    lines: Sequence[PredictedConfiguration],
    parts: tuple[Contribution, ...] = (),
    clock: Clock | None = None,
) -> Decision:
    """The best configuration with its contributions `parts`; the others are alternatives."""
    key = "memory" if request.of_function else "configuration"
    best = ranked(lines)[0]
    by_rule = ranked([_moved(line, line.rule_seconds) for line in lines])[0]
    by_model = ranked([_moved(line, line.model_seconds) for line in lines])[0]
    rule = _decision_answer(key, by_rule, f"rule:{answer.rule_name}")
    model = _decision_answer(key, by_model, TRIMTAB)
    chosen_by = answer.chosen_by
    chosen = model if chosen_by == MODEL else rule
    rank = "cheapest" if all(line.cost for line in lines) else "fastest"
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
        alternatives=tuple(_decision_answer(key, line, chosen.who) for line in lines if line is not best),
        reason=f"{rank} of {len(lines)} in {request.case.environment}; the {chosen_by}: {answer.reason}",
        contributions=parts,
    )


def _moved(line: PredictedConfiguration, seconds: float) -> PredictedConfiguration:
    """The line with the time of rule or model alone; measured lines stay."""
    if line.known:
        return line
    low, high = min(line.time.low, seconds), max(line.time.high, seconds)
    time = Estimate(seconds, low, high, line.time.coverage, "s")
    return replace(line, time=time, cost=line.price.cost(time) if line.price and line.cost else None)


def _decision_answer(key: str, line: PredictedConfiguration, who: str) -> Answer:
    seconds = float(f"{line.time.value:.4g}")
    return Answer(who, {key: line.configuration, "seconds": seconds}, _estimates(line))


def _estimates(line: PredictedConfiguration) -> dict[str, Estimate]:
    return {"time": line.time} | ({"cost": line.cost} if line.cost else {})


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """An application under every requested configuration, and those where it ran."""

    request: PredictionRequest
    guarded: Guarded
    lines: tuple[PredictedConfiguration, ...]  # where it ran first, then as requested
    _attribution: Attribution

    @property
    def application(self) -> str:
        return self.request.case.application

    @property
    def environment(self) -> str:
        return self.request.case.environment

    @property
    def chosen_by(self) -> str:
        return self.guarded.chosen_by

    @property
    def reason(self) -> str:
        return self.guarded.reason

    @property
    def rule_name(self) -> str:
        return self.guarded.rule_name

    @property
    def best(self) -> PredictedConfiguration:
        """The cheapest, or the fastest where a configuration has no price."""
        return ranked(self.lines)[0]

    @property
    def best_is(self) -> str:
        return "cheapest" if all(line.cost for line in self.lines) else "fastest"

    @property
    def ordered(self) -> tuple[PredictedConfiguration, ...]:
        """For reading: memory sizes from small to large, configurations from the best on."""
        if self.request.of_function:
            memory = self.request.case.setting("memory_bytes")
            return tuple(self.lines[row] for row in memory.argsort(kind="stable"))
        return tuple(ranked(self.lines))

    def at(self, where: str) -> PredictedConfiguration:
        """One configuration, such as "1024MB"."""
        return self.lines[self.request.row_of(where)]

    def contributions(self, where: str) -> tuple[Contribution, ...]:
        """Parts that add up to the predicted seconds; none where it was measured."""
        row = self.request.row_of(where)
        return () if self.lines[row].known else self._attribution.parts(row)

    def decision(self, clock: Clock | None = None) -> Decision:
        parts = self.contributions(self.best.configuration)
        return prediction_decision(self.request, self.guarded, self.lines, parts, clock)


def predict(
    description: Mapping[str, Any] | str | Path,
    at: str | Sequence[str] = "all",
    foundation: Foundation | None = None,
) -> Prediction:
    """Predict an application that ran one to three times under other sizes or configurations.

    `description` is a YAML or JSON file, or a mapping of the same form (a bare number is seconds or bytes).
    `at` are sizes or configurations, in a sequence or with commas between; "all" is every known one. Without
    `foundation` the shipped weights answer. Nothing is written anywhere.
    """
    weights = foundation or shipped_foundation()
    texts = at.split(",") if isinstance(at, str) else at
    places = [text.strip() for text in texts if text.strip()]
    if isinstance(description, Mapping):
        request = make_request(description, places, weights)
    else:
        request = read_request(Path(description), places, weights)
    answer = guarded(request.fitted, request.case, request.known)
    lines = tuple(prediction_lines(request, answer, request.fitted.coverage))
    parts = Attribution(answer.answering.predict, request.case, request.known, request.places)
    return Prediction(request, answer, lines, parts)


def signed(seconds: float) -> str:
    """A part of a time: "+81.3 ms", "-2 s"."""
    return ("-" if seconds < 0 else "+") + format_duration(abs(seconds))


def cost_scale(answer: Prediction) -> tuple[float, str]:
    """Number of runs to price, and its name: one invocation costs too little to read."""
    return (1e6, "1M") if answer.request.of_function else (1.0, "a run")


def cost_words(dollars: float, answer: Prediction) -> str:
    """The cost of one run in readable form: "$2.06 for 1M"."""
    runs, name = cost_scale(answer)
    return f"{format_money(dollars * runs)} for {name}"


def likeness(answer: Prediction) -> str:
    """Unlikeness of the known runs to everything learned from: by their numbers and by embedding."""
    unlike, score = answer.guarded.unlike, answer.guarded.score
    sentence = "Nothing that was learned from can be compared with it."
    if math.isfinite(unlike):
        sentence = f"It is {unlike:.1f} standard deviations from the most alike application learned from."
    if score is not None:
        alike = f"; most alike: {', '.join(answer.guarded.alike)}" if answer.guarded.alike else ""
        sentence += f" {score:.0%} of held-out applications were nearer to those learned from{alike}."
    return sentence


def explained(answer: Prediction, where: str) -> list[str]:
    """Reasons of a time and its cost, a line for each part."""
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
