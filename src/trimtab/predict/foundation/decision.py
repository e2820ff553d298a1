"""A prediction as a decision that the ledger can keep: rule and model side by side, the cheapest chosen."""

import uuid
from dataclasses import dataclass, replace

import numpy as np

from trimtab.core import Answer, Clock, Contribution, Decision, Estimate, RealClock
from trimtab.predict.fewshot import OURS, Array
from trimtab.predict.foundation.attribution import contributions
from trimtab.predict.foundation.guard import Guarded
from trimtab.predict.foundation.request import Request

# Lambda's list price on x86 in most regions, dollars per GiB and second.
_LAMBDA_PRICE = 0.0000166667
_GIB = 2.0**30
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Line:
    """One configuration: what it would take and cost."""

    configuration: str
    known: bool
    time: Estimate
    cost: Estimate | None
    rule_seconds: float
    model_seconds: float


def prediction_lines(request: Request, found: Guarded, coverage: float) -> list[Line]:
    """Every configuration of the request; those that were run have no range."""
    prices = _price_per_second(request)
    made = []
    for row, configuration in enumerate(request.places):
        known = row in request.known
        seconds = float(request.case.seconds[row] if known else found.seconds[row])
        low, high = (seconds, seconds) if known else (float(found.low[row]), float(found.high[row]))
        time = Estimate(seconds, min(low, seconds), max(high, seconds), coverage, "s")
        price = float(prices[row])
        cost = None if np.isnan(price) else time.scaled(price, "$")
        made.append(Line(configuration, known, time, cost, float(found.rule[row]), float(found.model[row])))
    return made


def prediction_decision(
    request: Request, found: Guarded, made: list[Line], clock: Clock | None = None
) -> Decision:
    """The cheapest configuration, or the fastest where nothing has a price; the others are alternatives."""
    priced = all(line.cost for line in made)
    key = "memory" if request.of_function else "configuration"
    best = _best(made, priced)
    by_rule = _best([_moved(line, line.rule_seconds) for line in made], priced)
    by_model = _best([_moved(line, line.model_seconds) for line in made], priced)
    rule, model = _answer(key, by_rule, f"rule:{found.rule_name}"), _answer(key, by_model, OURS)
    chosen = model if found.chosen_by == "model" else rule
    what = "cheapest" if priced else "fastest"
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
        alternatives=tuple(_answer(key, line, chosen.who) for line in made if line is not best),
        reason=f"{what} of {len(made)} in {request.case.environment}; the {found.chosen_by}: {found.reason}",
        contributions=() if best.known else explanation(request, found, best),
    )


def explanation(request: Request, found: Guarded, line: Line) -> tuple[Contribution, ...]:
    """What makes up the chosen answer for one configuration, in seconds."""
    fitted = request.fitted
    chosen = fitted if found.chosen_by == "model" else fitted.rules[found.rule_name]
    target = request.places.index(line.configuration)
    return contributions(chosen.predict, request.case, request.known, target, request.places)


def _best(made: list[Line], priced: bool) -> Line:
    return min(made, key=lambda line: line.cost.value if priced and line.cost else line.time.value)


def _moved(line: Line, seconds: float) -> Line:
    """The line as rule or model alone would have it; what was measured stays."""
    if line.known:
        return line
    time = Estimate(
        seconds, min(line.time.low, seconds), max(line.time.high, seconds), line.time.coverage, "s"
    )
    cost = line.cost and time.scaled(line.cost.value / line.time.value, "$")
    return replace(line, time=time, cost=cost)


def _answer(key: str, line: Line, who: str) -> Answer:
    seconds = float(f"{line.time.value:.4g}")
    return Answer(who, {key: line.configuration, "seconds": seconds}, _estimates(line))


def _estimates(line: Line) -> dict[str, Estimate]:
    return {"time": line.time} | ({"cost": line.cost} if line.cost else {})


def _price_per_second(request: Request) -> Array:
    """Dollars per second under every configuration; NaN where nothing is charged or it is not known."""
    case = request.case
    if case.environment == "lambda":
        return _LAMBDA_PRICE * case.setting("memory_bytes") / _GIB
    return case.setting("price_per_hour") * case.setting("nodes") / _HOUR
