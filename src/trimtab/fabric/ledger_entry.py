"""An advice as a decision for the ledger: the fabric and its interval, beside a rule that everybody knows."""

import uuid

from trimtab.core import (
    HOUR,
    Answer,
    Clock,
    Contribution,
    Decision,
    Estimate,
    RealClock,
    Scalar,
    format_duration,
)
from trimtab.fabric.advice import MONTH, Advice, Losses

RULE = "no fabric, Young's interval"
MODEL = "renewal"


def advice_decision(advice: Advice, clock: Clock | None = None) -> Decision:
    """What the advice comes to; its estimates are a month's losses: "time" in seconds, "cost" in dollars.

    Without the fabric where its slowdown eats up what it saves. Contributions are parts of the time lost.
    """
    devices = advice.question.devices
    answers = [
        Answer(MODEL, _action(devices, fabric, losses.interval.used), _estimates(losses))
        for fabric, losses in ((True, advice.with_fabric), (False, advice.without))
    ]
    pays = advice.saved_dollars.value > 0.0
    chosen, other = answers if pays else answers[::-1]
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="fabric",
        subject=f"a job on {devices} devices",
        action=chosen.action,
        estimates=chosen.estimates,
        chosen_by=MODEL,
        rule=_rule(advice),
        model=chosen,
        alternatives=(other,),
        reason=_reason(advice, pays),
        contributions=_contributions(advice.with_fabric if pays else advice.without),
    )


def _rule(advice: Advice) -> Answer:
    """Young's interval, and what it loses: as much as the one in use, and what is lost by not using that."""
    losses, question = advice.without, advice.question
    more = advice.young_costs - advice.used_costs
    hours = more / (question.price.value * question.devices * HOUR) if question.price.value else 0.0
    estimates = {
        "time": _shifted(losses.hours, hours, HOUR, "s"),
        "cost": _shifted(losses.dollars, more, 1.0, "$"),
    }
    return Answer(RULE, _action(question.devices, False, losses.interval.young), estimates)


def _action(devices: int, fabric: bool, interval: float) -> dict[str, Scalar]:
    return {"devices": devices, "fabric": fabric, "seconds_between_checkpoints": round(interval, 1)}


def _estimates(losses: Losses) -> dict[str, Estimate]:
    return {"time": _shifted(losses.hours, 0.0, HOUR, "s"), "cost": losses.dollars}


def _shifted(estimate: Estimate, by: float, scale: float, unit: str) -> Estimate:
    value, low, high = ((end + by) * scale for end in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, low, high, estimate.coverage, unit)


def _reason(advice: Advice, pays: bool) -> str:
    saved, even = advice.saved_dollars, advice.break_even
    interval = advice.with_fabric.interval if pays else advice.without.interval
    return (
        f"of {advice.interruptions.value:.3g} interruptions a month the fabric survives "
        f"{advice.survived.value:.3g}, which saves ${saved.value:,.0f} (${saved.low:,.0f} to "
        f"${saved.high:,.0f}); it is worth it while steps are slower by less than {100 * even.value:.2g} %; "
        f"{format_duration(interval.used)} between checkpoints, by Young's rule "
        f"{format_duration(interval.young)}"
    )


def _contributions(losses: Losses) -> tuple[Contribution, ...]:
    split = losses.split
    parts = {
        "saving checkpoints": split.saving,
        "noticing": split.noticing,
        "restarting": split.restarting,
        "work done twice": split.redone,
    }
    return tuple(Contribution(name, share * MONTH) for name, share in parts.items())
