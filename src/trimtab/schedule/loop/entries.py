"""What the scheduler does, as the ledger keeps it: decisions with reasons, and what came of them."""

import math
import uuid

import numpy as np

from trimtab.core import Answer, Decision, Estimate, Outcome, Scalar
from trimtab.schedule.loop.view import View
from trimtab.store import JobRecord


def decision(
    record: JobRecord,
    policy: str,
    action: dict[str, Scalar],
    reason: str,
    now: float,
    estimates: dict[str, Estimate] | None = None,
) -> Decision:
    """Something a policy did to a job."""
    answer = Answer(f"rule:{policy}", action, estimates or {})
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=now,
        kind="schedule",
        subject=f"{record.name} ({record.id})",
        action=answer.action,
        estimates=answer.estimates,
        chosen_by=answer.who,
        rule=answer,
        model=None,
        alternatives=(),
        reason=reason,
    )


def expected(view: View, row: int, shape: int) -> dict[str, Estimate]:
    """How long a job is believed to run in a shape from now on, and what that costs; nothing if unknown."""
    jobs = view.jobs
    chosen = view.cluster.shapes[shape]
    speed = float(jobs.speed[row, shape])
    left = np.array([jobs.remaining[row], jobs.remaining_low[row], jobs.remaining_high[row]])
    if not speed or np.isnan(left).any():
        return {}
    value, low, high = (float(each) for each in left / speed)
    time = Estimate(value, low, high, 0.8 if high > low else 1.0, "s")
    price = float(view.cluster.gpu_price[chosen.group]) * chosen.workers * (float(jobs.gpus[row]) or 1.0)
    return {"time": time, "cost": time.scaled(price, "$")} if price else {"time": time}


def outcome(record: JobRecord, ended: float, price: float, note: str) -> Outcome | None:
    """What came of the decision that started the present run; None where no run had begun."""
    run = record.run
    if not run.decision or run.since is None:
        return None
    seconds = max(0.0, ended - run.since)
    measured = {"time": seconds, "cost": seconds * price} if price else {"time": seconds}
    return Outcome(run.decision, ended, measured, note)


def finite(value: float) -> float | None:
    """None for what is not known or never comes."""
    return value if math.isfinite(value) else None
