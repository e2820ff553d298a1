"""A recommendation as a decision of the ledger, and outcomes of earlier ones as the guard takes them."""

import uuid
from collections.abc import Callable, Sequence

from trimtab.core import Answer, Clock, Decision, Estimate, Outcome, Profile, RealClock, Scalar
from trimtab.predict import AnalyticEstimator, EarlierRun, GuardedEstimator
from trimtab.recommend.explain import STARTING, contributions, reason
from trimtab.recommend.search import MEMORY_COVERAGE, Recommendation, Row, Side
from trimtab.store import Store

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
    """The configuration to rent, and the facts of the workload that an outcome must be read with."""
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


LOOK_BACK = 100
"""How many decisions back to look for outcomes."""

# Another model under the same name is another workload: its parameters may differ by this share.
_SAME_PARAMETERS = 0.1
# Machines may start this much faster or slower than assumed, as a share of the assumption.
_START_UNSURE = 1.0
# Even a job that ended sooner than machines start ran for this share of its time.
_LEAST_RUNNING = 0.01


def earlier_runs(
    store: Store, profile: Profile, tenants: Sequence[str] | None = None
) -> tuple[EarlierRun, ...]:
    """Outcomes of earlier decisions about the profiled workload that `tenants` may see, oldest first."""
    made = store.ledger.list(LOOK_BACK, "recommend", profile.workload.name, tenants)
    return runs_after(made, lambda id: store.ledger.outcomes(id, tenants), profile)


def runs_after(
    newest_first: Sequence[Decision], outcomes: Callable[[str], Sequence[Outcome]], profile: Profile
) -> tuple[EarlierRun, ...]:
    """Outcomes of decisions from any source, oldest first; `outcomes` returns those of a decision's id."""
    found = []
    for made in reversed(newest_first):
        if _same_model(made, profile):
            runs = (_run(made, outcome, profile) for outcome in outcomes(made.id))
            found += [run for run in runs if run]
    return tuple(found)


def _same_model(made: Decision, profile: Profile) -> bool:
    """Whether the decision was about this model, as far as it says."""
    then, now = made.action.get("parameters"), profile.model.parameters if profile.model else None
    if not isinstance(then, int) or not now:
        return True
    return abs(then / now - 1) <= _SAME_PARAMETERS


def _run(made: Decision, outcome: Outcome, profile: Profile) -> EarlierRun | None:
    """The outcome relative to what the rule said; None where it says nothing about time."""
    action, estimate = made.action, made.rule.estimates.get("time")
    seconds = _seconds(made, outcome)
    batch, nodes = action.get("batch_size"), action.get("nodes")
    if estimate is None or seconds is None or not isinstance(batch, int) or not isinstance(nodes, int):
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
    )


def _seconds(made: Decision, outcome: Outcome) -> float | None:
    """How long it took, or how long what it cost pays for."""
    price = made.action.get("price_per_second")
    time, cost = outcome.measured.get("time"), outcome.measured.get("cost")
    if time is None and cost is not None and isinstance(price, float) and price > 0:
        time = cost / price
    return time if time and time > 0 else None
