"""A recommendation as a decision that the ledger can keep and an outcome can judge."""

import uuid

from trimtab.core import Answer, Clock, Decision, RealClock
from trimtab.predict import AnalyticEstimator
from trimtab.recommend.explain import contributions, reason
from trimtab.recommend.search import Recommendation, Row


def decision(result: Recommendation, clock: Clock | None = None, chosen: int = 1) -> Decision:
    """The decision for row `chosen`; the other rows are its alternatives."""
    picked = result.rows[chosen - 1]
    answer = _answer(picked)
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="recommend",
        subject=result.profile.workload.name,
        action=answer.action,
        estimates=answer.estimates,
        chosen_by=answer.who,
        rule=answer,
        model=None,
        alternatives=tuple(_answer(row) for row in result.rows if row.rank != chosen),
        reason=f"{result.request.objective}: {reason(picked, result.rows[0])}",
        contributions=contributions(picked, result.request.assume.startup),
    )


def _answer(row: Row) -> Answer:
    c = row.configuration
    return Answer(
        who=f"rule:{AnalyticEstimator.name}",
        action={
            "cloud": c.offer.cloud,
            "region": c.offer.region,
            "instance": c.offer.instance,
            "accelerator": c.offer.accelerator,
            "accelerators": c.offer.accelerators,
            "nodes": c.nodes,
            "batch_size": c.batch_size,
            "spot": c.spot,
            "price_per_second": c.price,
        },
        estimates={"time": row.time, "cost": row.cost},
    )
