"""The result of a simulation: when jobs began and ended, what they held and cost, summaries to compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from trimtab.schedule.allocation import Bools
from trimtab.schedule.cluster import Cluster, Floats, Ints, Market
from trimtab.schedule.job import Job
from trimtab.schedule.quota import jain_index
from trimtab.schedule.simulation.state import SimulationState


@dataclass(frozen=True, slots=True)
class RunSegment:
    """A job's workers in a group from one moment to another."""

    job: int
    group: int
    workers: int
    start: float
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Columns by job of the trace; moments that never came are infinite.

    `ran` is the seconds for which each job held nodes. `why` gives the last reason of the jobs that waited
    longest, and of those that were refused.
    """

    jobs: Sequence[Job]
    cluster: Cluster
    tenants: tuple[str, ...]
    tenant: Ints
    submitted: Floats
    started: Floats
    ended: Floats
    deadline: Floats
    refused: Bools
    restarts: Ints
    ran: Floats
    attained: Floats
    held: Floats
    spent: Floats
    segments: Sequence[RunSegment]
    why: Mapping[int, str]
    rounds: int
    job_rounds: int
    end: float

    @staticmethod
    def of(
        state: SimulationState,
        cluster: Cluster,
        segments: Sequence[RunSegment],
        why: Mapping[int, str],
        rounds: int,
        job_rounds: int,
        end: float,
    ) -> "Replay":
        """The result of a simulation in its final state."""
        shared = {column.name for column in fields(Replay)} & {column.name for column in fields(state)}
        columns = {name: getattr(state, name) for name in shared}
        columns |= {"restarts": np.maximum(state.restarts, 0), "cluster": cluster, "segments": segments}
        return Replay(**columns, why=why, rounds=rounds, job_rounds=job_rounds, end=end)

    @property
    def completion(self) -> Floats:
        """Seconds from submission to the end, of jobs that ended."""
        ended = np.isfinite(self.ended)
        return (self.ended - self.submitted)[ended]

    @property
    def waited(self) -> Floats:
        """Seconds without nodes from each job's submission to its end; 0 if refused."""
        waited = np.minimum(self.ended, self.end) - self.submitted - self.ran
        return np.where(self.refused, 0.0, np.maximum(waited, 0.0))

    @property
    def priced(self) -> bool:
        """Whether anything has a price: nodes, or the data that jobs moved."""
        return bool(self.cluster.gpu_price.any() or self.spent.any())

    @property
    def makespan(self) -> float:
        """Seconds from the first submission until the last job ended."""
        ended = self.ended[np.isfinite(self.ended)]
        return float(ended.max() - self.submitted[0]) if len(ended) else 0.0

    @property
    def deadlines_met(self) -> float:
        """The share of jobs with a deadline that ended in time; 1 where there is none."""
        dated = np.isfinite(self.deadline)
        return float(np.mean(self.ended[dated] <= self.deadline[dated])) if dated.any() else 1.0

    @property
    def utilization(self) -> float:
        """The share of all accelerators that jobs held until the last one ended."""
        total = self.cluster.capacity[:, 0].sum() * self.makespan
        return float(self.attained.sum() / total) if total else 0.0

    @property
    def cost(self) -> float:
        """Dollars: spending of jobs, and reserved nodes whether used or not."""
        groups = self.cluster.groups
        reserved = np.array([group.market is Market.RESERVED for group in groups], dtype=bool)
        always = sum(g.nodes * g.price * self.makespan for g in groups if g.market is Market.RESERVED)
        counted_twice = (self.held.sum(axis=0) * self.cluster.gpu_price)[reserved].sum()
        return float(always + self.spent.sum() - counted_twice)

    def figures(self) -> dict[str, float]:
        """The figures of a bench: hours, shares, dollars; times to completion are NaN where no job ended."""
        hours = self.completion / 3600.0
        return {
            "avg_jct_h": float(hours.mean()) if len(hours) else np.nan,
            "p99_jct_h": float(np.percentile(hours, 99)) if len(hours) else np.nan,
            "makespan_h": self.makespan / 3600.0,
            "restarts": float(self.restarts.sum() / max(1, len(self.jobs))),
            "utilization": self.utilization,
            "deadlines_met": self.deadlines_met,
            "cost": self.cost,
            "gpu_h_per_job": float(self.attained.sum() / max(1, len(self.jobs)) / 3600.0),
        }


@dataclass(frozen=True, slots=True)
class TenantSummary:
    """Figures of one tenant: average seconds to completion, accelerator-seconds, dollars.

    `served` is the part of its jobs' lives, from submission to end, in which they held nodes.
    """

    name: str
    jobs: int
    completion: float
    served: float
    attained: float
    spent: float


def tenant_summaries(replay: Replay) -> tuple[TenantSummary, ...]:
    """Every tenant, in order of first appearance; `served` leaves refused jobs out."""
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
    dated = int(np.isfinite(replay.deadline).sum())
    return {
        **replay.figures(),
        "jain": jain_index(served),
        "deadlines": float(dated),
        "ended": float(np.isfinite(replay.ended).sum()),
        "refused": float(replay.refused.sum()),
    }
