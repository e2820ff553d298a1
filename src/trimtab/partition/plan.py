"""Plans and placements of a model on devices, and their forecasts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph

Schedule = Literal["gpipe", "1f1b"]
Sharding = Literal["none", "optimizer", "full"]
Optimizer = Literal["sgd", "momentum", "adam"]

STATE_NUMBERS: dict[Optimizer, int] = {"sgd": 0, "momentum": 1, "adam": 2}
"""fp32 numbers that each optimizer keeps per weight."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Use of the model: samples per step, number format of the arithmetic, optimizer; or inference."""

    batch: int
    precision: str = "fp32"
    optimizer: Optimizer = "adam"
    training: bool = True

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise BadInputError(f"a step of {self.batch} samples trains nothing; give a batch of at least 1")
        if self.optimizer not in STATE_NUMBERS:
            raise BadInputError(
                f'no optimizer is called "{self.optimizer}"; there are {", ".join(STATE_NUMBERS)}'
            )


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes of the graph that run together on one row of devices.

    `ranks[r]` are the devices of replica r: one, or several that share every product (tensor parallelism).
    """

    nodes: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline of stages, `replicas` times side by side, in micro-batches.

    A step is `microbatches` times `sum(shares)` samples: replica r takes `shares[r]` of each micro-batch.
    Tensors for later stages pass through all stages between. `sharding` is the state that replicas keep a
    part of: none, the optimizer's (ZeRO 1), or weights and gradients too (ZeRO 3, FSDP). With `recompute`,
    a stage keeps only its inputs and computes the rest again in the backward pass.
    """

    stages: tuple[Stage, ...]
    shares: tuple[int, ...]
    microbatches: int
    schedule: Schedule = "1f1b"
    sharding: Sharding = "none"
    recompute: bool = False

    @property
    def replicas(self) -> int:
        """Number of pipelines side by side (data parallelism)."""
        return len(self.shares)

    @property
    def tensor(self) -> int:
        """Number of devices that share every product (tensor parallelism)."""
        return len(self.stages[0].ranks[0])

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return self.microbatches * sum(self.shares)

    def devices(self) -> Iterator[tuple[int, int, int]]:
        """Every device with its stage and its replica, once for each stage that it runs."""
        for number, stage in enumerate(self.stages):
            for replica, rank in enumerate(stage.ranks):
                for device in rank:
                    yield device, number, replica

    def stage_of(self, count: int) -> tuple[int, ...]:
        """The stage of each of the graph's `count` nodes."""
        where = [-1] * count
        for number, stage in enumerate(self.stages):
            for node in stage.nodes:
                where[node] = number
        return tuple(where)


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Use of one device by a plan: bytes by purpose, and busy seconds of a step."""

    device: int
    stages: tuple[int, ...]
    replica: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    workspace: float
    busy: float

    @property
    def memory(self) -> float:
        """Bytes at the worst moment."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.workspace


@dataclass(frozen=True, slots=True)
class PlanForecast:
    """PlanForecast of a plan: seconds of a step and their interval, memory per device, bottleneck.

    `latency` is the time of one micro-batch alone, forward and back; `bottleneck` that of each further one;
    `synchronisation` that of adding up gradients. `transfers[i]` are the seconds of sending one micro-batch
    from stage i to the next. `short` bytes are missing; `idle` bytes stay free on the devices in use; `price`
    is dollars per second of all of them, None where a price is unknown.
    """

    seconds: float
    low: float
    high: float
    latency: float
    bottleneck: float
    synchronisation: float
    bubble: float
    stage_forward: tuple[float, ...]
    stage_backward: tuple[float, ...]
    transfers: tuple[float, ...]
    uses: tuple[DeviceUse, ...]
    fits: bool
    short: float
    idle: float
    batch: int
    price: float | None

    @property
    def throughput(self) -> float:
        """Samples per second; zero where it does not fit."""
        return self.batch / self.seconds if self.fits else 0.0

    @property
    def cost_per_sample(self) -> float | None:
        """Dollars; None where a price is unknown."""
        return None if self.price is None else self.price * self.seconds / self.batch


Row = tuple[tuple[int, ...], ...]
"""Devices of one stage: for every replica, those that share its products."""


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
        return cls(plan.shares, plan.tensor, plan.microbatches, plan.schedule, plan.sharding, plan.recompute)

    @property
    def replicas(self) -> int:
        return len(self.shares)

    def plan(self, stages: tuple[Stage, ...]) -> Plan:
        return Plan(stages, self.shares, self.microbatches, self.schedule, self.sharding, self.recompute)

    def in_flight(self, from_end: int) -> int:
        """Micro-batches whose activations a stage holds; the last stage is 1 from the end."""
        return self.microbatches if self.schedule == "gpipe" else min(self.microbatches, from_end)


@dataclass(frozen=True, slots=True, eq=False)
class NodePlacement:
    """A device for every node: `latency` in seconds of one pass, `used` bytes of every device in use.

    `busy` are the seconds in which each device computes; `alone` is the latency of all nodes on `fastest`,
    the fastest device, even if they do not fit there. `loss` is the minimised quantity.
    """

    graph: Graph
    devices: Devices
    recipe: Recipe
    device_of: tuple[int, ...]
    latency: float
    used: dict[int, float]
    busy: dict[int, float]
    idle: float
    idle_weight: float
    fastest: int
    alone: float
    alone_fits: bool
    loss: float
    fits: bool

    def loss_of(self, latency: float, idle: float) -> float:
        """The loss of another way to run the same pass, with `idle` bytes."""
        return loss(latency, self.alone, idle, self.devices, self.idle_weight)


def loss(latency: float, alone: float, idle: float, devices: Devices, idle_weight: float) -> float:
    """Latency relative to the fastest device alone, plus weighted idle memory as a share of all memory."""
    return latency / alone + idle_weight * idle / float(devices.memory.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The plan that `method` found in `seconds`, its forecast, and its inputs.

    `reasons` explain the choice; `alternatives` are other plans by name. Where nothing fits, it is the plan
    nearest to fitting, and its forecast says so. For the latency objective, `placement` runs branches side
    by side where that is better than the plan.
    """

    plan: Plan
    forecast: PlanForecast
    graph: Graph
    devices: Devices
    recipe: Recipe
    method: str
    reasons: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, PlanForecast], ...] = ()
    seconds: float = 0.0
    placement: NodePlacement | None = None
