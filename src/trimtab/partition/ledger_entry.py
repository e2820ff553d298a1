"""A plan as a decision of the ledger."""

import uuid
from dataclasses import replace

from trimtab.core import Answer, Clock, Contribution, Decision, Estimate, RealClock, Scalar
from trimtab.partition.explain import explained_placement, limits, mix
from trimtab.partition.plan import Plan, PlanForecast, Solution

_COVERAGE = 0.9
"""Of the intervals of operations' times."""


def decision(solution: Solution, clock: Clock | None = None) -> Decision:
    """The decision for a plan, or for a better placement; its time is that of one step or pass."""
    chosen_by = f"rule:partition-{solution.method}"
    placed, words = solution.placement, explained_placement(solution)
    action, forecast = _action(solution), solution.forecast
    if placed and words:
        action |= {"plan": words.summary, "devices": ", ".join(row.device for row in words.rows)}
        shorter = placed.latency / forecast.seconds
        forecast = replace(
            forecast,
            seconds=placed.latency,
            low=forecast.low * shorter,
            high=forecast.high * shorter,
            price=solution.devices.price(placed.used),
        )
    estimates = _estimates(forecast)
    reasons = solution.reasons or limits(solution.devices, solution.plan, solution.forecast)[:1]
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="partition",
        subject=solution.graph.name,
        action=action,
        estimates=estimates,
        chosen_by=chosen_by,
        rule=Answer(chosen_by, action, estimates),
        model=None,
        alternatives=tuple(
            Answer(name, {"plan": name}, _estimates(other))
            for name, other in solution.alternatives
            if other.fits
        ),
        reason="; ".join(reasons),
        contributions=() if placed else _contributions(solution.plan, solution.forecast),
    )


def _action(solution: Solution) -> dict[str, Scalar]:
    plan = solution.plan
    return {
        "plan": mix(plan, solution.recipe.training),
        "stages": len(plan.stages),
        "replicas": plan.replicas,
        "tensor": plan.tensor,
        "microbatches": plan.microbatches,
        "batch": plan.batch,
        "schedule": plan.schedule,
        "sharding": plan.sharding,
        "recompute": plan.recompute,
        "precision": solution.recipe.precision,
        "devices": ", ".join(solution.devices[use.device].name for use in solution.forecast.uses[:64]),
    }


def _estimates(forecast: PlanForecast) -> dict[str, Estimate]:
    time = Estimate(
        forecast.seconds,
        min(forecast.low, forecast.seconds),
        max(forecast.high, forecast.seconds),
        _COVERAGE,
        "s",
    )
    estimates = {"time": time}
    if forecast.price is not None:
        estimates["cost"] = time.scaled(forecast.price, "$")
    return estimates


def _contributions(plan: Plan, forecast: PlanForecast) -> tuple[Contribution, ...]:
    """Seconds of a step by cause, for the stage that computes longest; their sum is the step."""
    loads = zip(forecast.stage_forward, forecast.stage_backward, strict=True)
    computing = min(plan.microbatches * max(f + b for f, b in loads), forecast.seconds)
    once = min(forecast.synchronisation, forecast.seconds - computing)
    waiting = forecast.seconds - computing - once
    named = (("computing", computing), ("gradients and updates", once), ("waiting for other stages", waiting))
    return tuple(Contribution(name, seconds) for name, seconds in named if seconds > 0)
