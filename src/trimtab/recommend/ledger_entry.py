"""A recommendation as a decision of the ledger, and outcomes of earlier decisions as input of the guard."""

import uuid
from collections.abc import Callable, Sequence

from trimtab.core import Answer, Clock, Decision, Estimate, Outcome, Profile, RealClock, Scalar
from trimtab.predict import AnalyticEstimator, EarlierRun, GuardedEstimator
from trimtab.recommend.explain import STARTING, contributions, reason
from trimtab.recommend.search import MEMORY_COVERAGE, Recommendation, Row, Side

RULE, MODEL = f"rule:{AnalyticEstimator.name}", f"model:{GuardedEstimator.name}"


def decision(result: Recommendation, clock: Clock | None = None, chosen: int = 1) -> Decision:
    """The decision for row `chosen`; the other rows are its alternatives.

    Rule and model both estimate the chosen row, so that its outcome shows which of them was right.
    `chosen_by` is the source of its time and cost; the reason names the sources of time and memory.
    """
    picked = result.rows[chosen - 1]
    answer = _answer(result, picked)
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="recommend",
        subject=result.profile.workload.name,
        action=answer.action,
        estimates=answer.estimates,
        chosen_by=answer.who,
        rule=Answer(RULE, answer.action, _estimates(picked.rule)),
        model=Answer(MODEL, answer.action, _estimates(picked.model)),
        alternatives=tuple(_answer(result, row) for row in result.rows if row.rank != chosen),
        reason=(
            f"{result.request.objective}: {reason(picked, result.rows[0])}; time: {picked.time_choice};"
            f" memory: {picked.memory_choice}"
        ),
        contributions=contributions(picked, result.request.assume.startup),
    )


def _answer(result: Recommendation, row: Row) -> Answer:
    needs = Estimate(row.memory, 0.0, row.memory_high, MEMORY_COVERAGE, "B")
    return Answer(
        who=MODEL if row.time_by_model else RULE,
        action=_action(result, row),
        estimates={"time": row.time, "cost": row.cost, "memory": needs}
        | ({"energy": row.energy} if row.energy else {}),
    )


def _action(result: Recommendation, row: Row) -> dict[str, Scalar]:
    """The configuration to rent, and the facts of the workload that its outcome depends on."""
    c, model = row.configuration, result.profile.model
    return {
        "cloud": c.offer.cloud,
        "region": c.offer.region,
        "instance": c.offer.instance,
        "accelerator": c.offer.accelerator,
        "accelerators": c.offer.accelerators,
        "nodes": c.nodes,
        "batch_size": c.batch_size,
        "spot": c.spot,
        **({"parallel": c.parallel.name} if c.parallel.name else {}),
        "price_per_second": c.price,
        "precision": result.request.precision or (model.precision if model else None),
        "parameters": model.parameters if model else None,
    }


def _estimates(side: Side) -> dict[str, Estimate]:
    named = {"time": side.time, "cost": side.cost, "memory": side.memory}
    return {name: estimate for name, estimate in named.items() if estimate is not None}


LOOK_BACK = 100
"""The most decisions whose outcomes are read."""

_SAME_PARAMETERS = 0.1  # share by which the parameters of the same workload's model may differ
_START_UNSURE = 1.0  # uncertainty of the machines' start, as a share of the assumption
_LEAST_RUNNING = 0.01  # share of a job's time that it ran, even if shorter than the assumed start


def runs_after(
    newest_first: Sequence[Decision], outcomes: Callable[[str], Sequence[Outcome]], profile: Profile
) -> tuple[EarlierRun, ...]:
    """Outcomes of decisions about the profiled model, oldest first; `outcomes` takes a decision's id."""
    now = profile.model.parameters if profile.model else None
    earlier: list[EarlierRun] = []
    for decision in reversed(newest_first):
        then = decision.action.get("parameters")
        if not isinstance(then, int) or not now or abs(then / now - 1) <= _SAME_PARAMETERS:
            runs = (_run(decision, outcome, profile) for outcome in outcomes(decision.id))
            earlier += [run for run in runs if run]
    return tuple(earlier)


def _run(made: Decision, outcome: Outcome, profile: Profile) -> EarlierRun | None:
    """The outcome relative to the rule's estimate; None if it has neither time nor cost."""
    action, estimate = made.action, made.rule.estimates.get("time")
    price, seconds = action.get("price_per_second"), outcome.measured.get("time")
    cost = outcome.measured.get("cost")
    if seconds is None and cost is not None and isinstance(price, float) and price > 0:
        seconds = cost / price
    batch, nodes = action.get("batch_size"), action.get("nodes")
    if (
        estimate is None
        or not seconds
        or seconds < 0
        or not isinstance(batch, int)
        or not isinstance(nodes, int)
    ):
        return None
    start = sum(c.value for c in made.contributions if c.name == STARTING)
    running, expected = max(seconds - start, _LEAST_RUNNING * seconds), estimate.value - start
    if not expected > 0:
        return None
    accelerator, count = action.get("accelerator"), action.get("accelerators")
    precision = action.get("precision")
    return EarlierRun(
        accelerator=str(accelerator) if accelerator else None,
        devices=float(nodes * (count if isinstance(count, int) and count else 1)),
        batch=float(batch),
        precision=str(precision or (profile.model.precision if profile.model else "fp32")),
        ratio=running / expected,
        noise=_START_UNSURE * start / max(running, expected),
        trusted=outcome.trusted,
    )
