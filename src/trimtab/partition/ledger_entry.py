"""A plan as a decision that the ledger can keep and a measured step can judge."""

import uuid
from dataclasses import replace

from trimtab.core import Answer, Clock, Contribution, Decision, Estimate, RealClock, Scalar
from trimtab.partition.explain import explained_placement, limits, mix
from trimtab.partition.plan import Forecast, Placement, Plan, Solution

_COVERAGE = 0.9
"""Of the ranges that operations' times are predicted with."""


def decision(found: Solution, clock: Clock | None = None) -> Decision:
    """The decision for a plan, or for the placement that is better: its time is that of one step or pass."""
    who, placed, words = f"rule:partition-{found.method}", found.placement, explained_placement(found)
    action = _action(found)
    estimates = _estimates(_of_a_pass(found.forecast, placed) if placed else found.forecast)
    if words:
        action = {**action, "plan": words.summary, "devices": ", ".join(row.device for row in words.rows)}
    reasons = found.reasons or limits(found.devices, found.plan, found.forecast)[:1]
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="partition",
        subject=found.graph.name,
        action=action,
        estimates=estimates,
        chosen_by=who,
        rule=Answer(who, action, estimates),
        model=None,
        alternatives=tuple(
            Answer(name, {"plan": name}, _estimates(other))
            for name, other in found.alternatives
            if other.fits
        ),
        reason="; ".join(reasons),
        contributions=() if placed else _contributions(found.plan, found.forecast),
    )


def _of_a_pass(forecast: Forecast, placed: Placement) -> Forecast:
    """The forecast with the placement's time, as wide a range, and what its devices cost."""
    shorter = placed.latency / forecast.seconds
    prices = [placed.devices[device].price for device in placed.used]
    known = [price for price in prices if price is not None]
    return replace(
        forecast,
        seconds=placed.latency,
        low=forecast.low * shorter,
        high=forecast.high * shorter,
        price=sum(known) if len(known) == len(prices) else None,
    )


def _action(found: Solution) -> dict[str, Scalar]:
    plan = found.plan
    return {
        "plan": mix(plan, found.recipe.training),
        "stages": len(plan.stages),
        "replicas": plan.replicas,
        "tensor": plan.tensor,
        "microbatches": plan.microbatches,
        "batch": plan.batch,
        "schedule": plan.schedule,
        "sharding": plan.sharding,
        "recompute": plan.recompute,
        "precision": found.recipe.precision,
        "devices": ", ".join(found.devices[use.device].name for use in found.forecast.uses[:64]),
    }


def _estimates(forecast: Forecast) -> dict[str, Estimate]:
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


def _contributions(plan: Plan, forecast: Forecast) -> tuple[Contribution, ...]:
    """Seconds of a step by cause, of the stage that computes longest; they add up to the step."""
    loads = zip(forecast.stage_forward, forecast.stage_backward, strict=True)
    computing = min(plan.microbatches * max(f + b for f, b in loads), forecast.seconds)
    once = min(forecast.synchronisation, forecast.seconds - computing)
    waiting = forecast.seconds - computing - once
    named = (("computing", computing), ("gradients and updates", once), ("waiting for other stages", waiting))
    return tuple(Contribution(name, seconds) for name, seconds in named if seconds > 0)
