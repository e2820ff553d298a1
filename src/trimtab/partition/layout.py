"""What all stages of a plan have in common: replicas, tensor parallelism, micro-batches, what is kept."""

from dataclasses import dataclass

from trimtab.partition.plan import Plan, Schedule, Sharding, Stage

Row = tuple[tuple[int, ...], ...]
"""Devices that can run one stage: for every replica, those that share its products."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A plan without its stages; see `Plan`."""

    shares: tuple[int, ...] = (1,)
    tensor: int = 1
    microbatches: int = 1
    schedule: Schedule = "1f1b"
    sharding: Sharding = "none"
    recompute: bool = False

    @classmethod
    def of(cls, plan: Plan) -> "Layout":
        """The layout of a plan."""
        return cls(plan.shares, plan.tensor, plan.microbatches, plan.schedule, plan.sharding, plan.recompute)

    @property
    def replicas(self) -> int:
        """How often the pipeline stands side by side."""
        return len(self.shares)

    def plan(self, stages: tuple[Stage, ...]) -> Plan:
        """The plan with these stages."""
        return Plan(stages, self.shares, self.microbatches, self.schedule, self.sharding, self.recompute)

    def in_flight(self, from_end: int) -> int:
        """Micro-batches whose activations a stage holds; the last stage is 1 from the end."""
        return self.microbatches if self.schedule == "gpipe" else min(self.microbatches, from_end)
