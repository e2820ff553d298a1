"""A recommendation as a decision that the ledger can keep and an outcome can judge."""

import uuid

from trimtab.core import Answer, Clock, Decision, Estimate, RealClock, Scalar
from trimtab.predict import AnalyticEstimator, GuardedEstimator
from trimtab.recommend.explain import contributions, reason
from trimtab.recommend.search import MEMORY_COVERAGE, Recommendation, Row, Side

RULE, MODEL = f"rule:{AnalyticEstimator.name}", f"model:{GuardedEstimator.name}"


def decision(result: Recommendation, clock: Clock | None = None, chosen: int = 1) -> Decision:
    """The decision for row `chosen`; the other rows are its alternatives.

    Rule and model both speak about the chosen row, so that its outcome says which of them was right.
    `chosen_by` is who answered for its time and cost; the reason says so too, and who did for memory.
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
        estimates={"time": row.time, "cost": row.cost, "memory": needs},
    )


def _action(result: Recommendation, row: Row) -> dict[str, Scalar]:
    """What to rent, and what of the workload an outcome must be read with."""
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
        "price_per_second": c.price,
        "precision": result.request.precision or (model.precision if model else None),
        "parameters": model.parameters if model else None,
    }


def _estimates(side: Side) -> dict[str, Estimate]:
    named = {"time": side.time, "cost": side.cost, "memory": side.memory}
    return {name: estimate for name, estimate in named.items() if estimate is not None}
