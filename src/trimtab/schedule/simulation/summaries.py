"""A simulation in figures that people compare, for all jobs and for each tenant."""

from dataclasses import dataclass

import numpy as np

from trimtab.schedule.quota import jain_index
from trimtab.schedule.simulation.replay import Replay


@dataclass(frozen=True, slots=True)
class TenantSummary:
    """What one tenant got: average seconds to completion, accelerator-seconds, dollars.

    `served` is the part of its jobs' lives, from submission to end, in which they held nodes.
    """

    name: str
    jobs: int
    completion: float
    served: float
    attained: float
    spent: float


def tenant_summaries(replay: Replay) -> tuple[TenantSummary, ...]:
    """Every tenant, in order of first appearance; refused jobs are not part of what is served."""
    summaries = []
    for number, name in enumerate(replay.tenants):
        rows = np.flatnonzero(replay.tenant == number)
        ended = rows[np.isfinite(replay.ended[rows])]
        lived = float((replay.ran[rows] + replay.waited[rows])[~replay.refused[rows]].sum())
        summaries.append(
            TenantSummary(
                name,
                len(rows),
                float((replay.ended - replay.submitted)[ended].mean()) if len(ended) else np.nan,
                float(replay.ran[rows].sum()) / lived if lived else 0.0,
                float(replay.attained[rows].sum()),
                float(replay.spent[rows].sum()),
            )
        )
    return tuple(summaries)


def summary(replay: Replay) -> dict[str, float]:
    """The figures of a bench, and Jain's index over the tenants' `served`."""
    served = [tenant.served for tenant in tenant_summaries(replay)]
    asked = int(np.isfinite(replay.deadline).sum())
    return {
        **replay.figures(),
        "jain": jain_index(served),
        "deadlines": float(asked),
        "ended": float(np.isfinite(replay.ended).sum()),
        "refused": float(replay.refused.sum()),
    }
