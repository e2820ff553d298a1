"""The size of a stage as a decision that the ledger can keep and an outcome can judge."""

import uuid

from trimtab.core import Answer, Clock, Decision, RealClock, Scalar
from trimtab.pipelines.sizing import RULE, Sized


def stage_decision(pipeline: str, sized: Sized, clock: Clock | None = None) -> Decision:
    """One stage's decision; what its file asked before is the alternative."""
    request, asked = sized.request, sized.stage.asked
    kept = request.accelerators is None
    action: dict[str, Scalar] = {
        "cpu": request.cpu,
        "memory": int(request.memory),
        "accelerator": (asked.accelerator if kept else request.accelerator) or None,
        "accelerators": asked.accelerators if kept else request.accelerators,
    }
    before: dict[str, Scalar] = {
        "cpu": asked.cpu,
        "memory": None if asked.memory is None else int(asked.memory),
        "accelerator": asked.accelerator or None,
        "accelerators": asked.accelerators,
    }
    estimates = {"time": sized.time, "memory": sized.memory}
    said = asked.cpu is not None or asked.memory is not None
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="pipeline",
        subject=f"{pipeline}/{sized.stage.name}",
        action=action,
        estimates=estimates,
        chosen_by=RULE,
        rule=Answer(RULE, action, estimates),
        model=None,
        alternatives=(Answer("file", before),) if said else (),
        reason=sized.reason,
    )
