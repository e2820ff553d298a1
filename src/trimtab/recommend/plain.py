"""A recommendation as plain data, for JSON: seconds, bytes, dollars."""

from typing import Any

from trimtab.core import to_plain
from trimtab.recommend.explain import bound, evidence, reason
from trimtab.recommend.search import Recommendation


def plain_recommendation(result: Recommendation, decision_id: str, top: int) -> dict[str, Any]:
    """The first `top` rows with what limits each and why it is where it is, and what was left out.

    What is not kept has "" for its decision's id.
    """
    return {
        "decision": decision_id or None,
        "workload": result.profile.workload.name,
        "objective": result.request.objective,
        "samples": result.work.samples,
        "considered": result.considered,
        "rows": [
            {
                **to_plain(row),
                "bound": bound(row),
                "reason": reason(row, result.rows[0]),
                "evidence": to_plain(evidence(row)),
            }
            for row in result.rows[:top]
        ],
        "dropped": to_plain(result.dropped),
        "notes": list(result.notes),
    }
