"""What to look for in a plan, and among which plans."""

from dataclasses import dataclass, field
from typing import Literal

from trimtab.partition.cost.assumptions import Assumptions
from trimtab.partition.plan import Schedule, Sharding
from trimtab.partition.solvers.cutting import Effort

Objective = Literal["throughput", "latency", "cost"]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Defaults look among all plans for the one with the most samples per second."""

    objective: Objective = "throughput"
    """Most samples per second, the shortest time of one micro-batch, or fewest dollars per sample."""
    idle_weight: float = 0.0
    """How much idle memory, as a share of all memory, counts beside latency, relative to the shortest."""
    microbatches: int | None = None
    """Micro-batches of a step; None tries all that divide the batch, or one where latency counts."""
    schedule: Schedule | None = None
    """The order of forward and backward passes; None takes 1f1b, or gpipe where that fits and is faster."""
    pipeline_only: bool = False
    """Neither data nor tensor parallelism."""
    most_replicas: int | None = None
    """Pipelines side by side at most (data parallelism)."""
    most_tensor: int = 8
    """Devices that share every product at most (tensor parallelism)."""
    shardings: tuple[Sharding, ...] = ("none", "optimizer", "full")
    """What replicas may keep only a part of."""
    recompute: bool = True
    """Whether activations may be computed again in the backward pass."""
    finalists: int = 6
    """Mixes that are cut thoroughly."""
    effort: Effort = field(default_factory=Effort)
    """How long to look at each of those."""
    seed: int = 0
    assume: Assumptions = field(default_factory=Assumptions)
