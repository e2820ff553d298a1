"""A prediction as a decision that the ledger can keep: rule and model side by side, the cheapest chosen."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.core import Answer, Clock, Contribution, Decision, Estimate, RealClock
from trimtab.predict.fewshot import OURS
from trimtab.predict.fewshot.foundation.attribution import Attribution
from trimtab.predict.fewshot.foundation.guard import Guarded
from trimtab.predict.fewshot.foundation.prices import Price, prices
from trimtab.predict.fewshot.foundation.request import Request


@dataclass(frozen=True, slots=True)
class Line:
    """One configuration: what a run would take and cost there; one that was run has no range."""

    configuration: str
    known: bool
    time: Estimate  # the chosen answer, in seconds
    cost: Estimate | None  # dollars; None where nothing is charged or the price is not known
    price: Price | None
    rule_seconds: float
    model_seconds: float


def prediction_lines(request: Request, found: Guarded, coverage: float) -> list[Line]:
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
        made.append(Line(configuration, known, time, cost, price, *both))
    return made


def best_line(made: Sequence[Line]) -> Line:
    """The cheapest, or the fastest where something has no price."""
    priced = all_priced(made)
    return min(made, key=lambda line: line.cost.value if priced and line.cost else line.time.value)


def all_priced(made: Sequence[Line]) -> bool:
    """Whether cost can decide."""
    return all(line.cost for line in made)


def attribution(request: Request, found: Guarded) -> Attribution:
    """What makes up the chosen answers, in seconds."""
    return Attribution(found.answering.predict, request.case, request.known, request.places)


def prediction_decision(
    request: Request,
    found: Guarded,
    made: Sequence[Line],
    parts: tuple[Contribution, ...] = (),
    clock: Clock | None = None,
) -> Decision:
    """The best configuration, made up of `parts`; the others are alternatives."""
    key = "memory" if request.of_function else "configuration"
    best = best_line(made)
    by_rule = best_line([_moved(line, line.rule_seconds) for line in made])
    by_model = best_line([_moved(line, line.model_seconds) for line in made])
    rule, model = _answer(key, by_rule, f"rule:{found.rule_name}"), _answer(key, by_model, OURS)
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
        alternatives=tuple(_answer(key, line, chosen.who) for line in made if line is not best),
        reason=f"{what} of {len(made)} in {request.case.environment}; the {found.chosen_by}: {found.reason}",
        contributions=parts,
    )


def _moved(line: Line, seconds: float) -> Line:
    """The line as rule or model alone would have it; what was measured stays."""
    if line.known:
        return line
    time = Estimate(
        seconds, min(line.time.low, seconds), max(line.time.high, seconds), line.time.coverage, "s"
    )
    return replace(line, time=time, cost=line.price.cost(time) if line.price and line.cost else None)


def _answer(key: str, line: Line, who: str) -> Answer:
    seconds = float(f"{line.time.value:.4g}")
    return Answer(who, {key: line.configuration, "seconds": seconds}, _estimates(line))


def _estimates(line: Line) -> dict[str, Estimate]:
    return {"time": line.time} | ({"cost": line.cost} if line.cost else {})
