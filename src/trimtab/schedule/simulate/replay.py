"""What came of a simulation.

When every job began and ended, what it held and cost, and the figures people compare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.cluster import Cluster, Floats, Ints, Market
from trimtab.schedule.job import Job
from trimtab.schedule.jobs import Bools
from trimtab.schedule.simulate.state import State


@dataclass(frozen=True, slots=True)
class Segment:
    """A job had so many workers in a group from one moment to another."""

    job: int
    group: int
    workers: int
    start: float
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Columns by job of the trace; what never happened is infinite.

    `ran` is for how many seconds each job held nodes. `why` says of those who waited longest why they did,
    the last time they were asked, and of those who were refused why.
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
    spent: Floats
    segments: Sequence[Segment]
    why: Mapping[int, str]
    rounds: int
    job_rounds: int
    end: float

    @staticmethod
    def of(
        state: State,
        cluster: Cluster,
        segments: Sequence[Segment],
        why: Mapping[int, str],
        rounds: int,
        job_rounds: int,
        end: float,
    ) -> "Replay":
        """What is left of the state in the end."""
        return Replay(
            jobs=state.jobs,
            cluster=cluster,
            tenants=state.tenants,
            tenant=state.tenant,
            submitted=state.submitted,
            started=state.started,
            ended=state.ended,
            deadline=state.deadline,
            refused=state.refused,
            restarts=np.maximum(state.restarts, 0),
            ran=state.ran,
            attained=state.attained,
            spent=state.spent,
            segments=segments,
            why=why,
            rounds=rounds,
            job_rounds=job_rounds,
            end=end,
        )

    @property
    def completion(self) -> Floats:
        """Seconds from submission to the end, of jobs that ended."""
        ended = np.isfinite(self.ended)
        return (self.ended - self.submitted)[ended]

    @property
    def waited(self) -> Floats:
        """Seconds each job had nothing, from its submission to its end or that of the simulation."""
        waited: Floats = np.minimum(self.ended, self.end) - self.submitted - self.ran
        return np.maximum(waited, 0.0)

    @property
    def makespan(self) -> float:
        """Seconds until the last job ended."""
        ended = self.ended[np.isfinite(self.ended)]
        return float(ended.max()) if len(ended) else 0.0

    @property
    def deadlines_met(self) -> float:
        """The share of jobs with a deadline that ended in time; 1 where none has one."""
        asked = np.isfinite(self.deadline)
        return float(np.mean(self.ended[asked] <= self.deadline[asked])) if asked.any() else 1.0

    @property
    def utilization(self) -> float:
        """The share of all accelerators that jobs held until the last one ended."""
        total = self.cluster.capacity[:, 0].sum() * self.makespan
        return float(self.attained.sum() / total) if total else 0.0

    @property
    def cost(self) -> float:
        """Dollars: what jobs used, and reserved nodes whether used or not."""
        reserved = [
            g.nodes * g.price * self.makespan for g in self.cluster.groups if g.market is Market.RESERVED
        ]
        used = sum(
            (s.end - s.start) * s.workers * self.jobs[s.job].worker.gpus * self.cluster.gpu_price[s.group]
            for s in self.segments
            if self.cluster.groups[s.group].market is not Market.RESERVED
        )
        return float(sum(reserved) + used)

    def figures(self) -> dict[str, float]:
        """The figures of a bench: hours, shares, dollars."""
        completion = self.completion / 3600.0
        return {
            "avg_jct_h": float(completion.mean()),
            "p99_jct_h": float(np.percentile(completion, 99)),
            "makespan_h": self.makespan / 3600.0,
            "restarts": float(self.restarts.mean()),
            "utilization": self.utilization,
            "deadlines_met": self.deadlines_met,
            "cost": self.cost,
            "gpu_h_per_job": float(self.attained.mean() / 3600.0),
        }
