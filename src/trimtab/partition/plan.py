"""A way to split a model over devices: stages, layout, placement, and what to expect of them."""

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
"""Numbers of fp32 that each optimizer keeps per weight."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the model is used: samples per step, number format of the arithmetic, optimizer; or inference."""

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
    """Nodes of the graph that run together, and who runs them.

    `ranks[r]` are the devices of replica r: one, or several that share every product (tensor parallelism).
    """

    nodes: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages one after the other, `replicas` times side by side, in micro-batches.

    A step is `microbatches` times `sum(shares)` samples: replica r takes `shares[r]` of each micro-batch.
    What a later stage needs of an earlier one is handed on from stage to stage. `sharding` says what replicas
    keep only a part of: nothing, the optimizer's state (ZeRO 1), or weights and gradients too (ZeRO 3, FSDP).
    `recompute` keeps only what enters a stage and computes the rest again in the backward pass.
    """

    stages: tuple[Stage, ...]
    shares: tuple[int, ...]
    microbatches: int
    schedule: Schedule = "1f1b"
    sharding: Sharding = "none"
    recompute: bool = False

    @property
    def replicas(self) -> int:
        """How often the pipeline stands side by side (data parallelism)."""
        return len(self.shares)

    @property
    def tensor(self) -> int:
        """How many devices share every product."""
        return len(self.stages[0].ranks[0])

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return self.microbatches * sum(self.shares)

    def devices(self) -> Iterator[tuple[int, int, int]]:
        """Every device with its stage and its replica; more than once where it runs several stages."""
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
    """Use of one device by a plan: bytes by purpose, and seconds it computes in a step."""

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
class Forecast:
    """Forecast of a plan: seconds of a step and their range, memory per device, bottleneck.

    `latency` is the time of one micro-batch alone, forward and back; `bottleneck` what each further one adds;
    `synchronisation` what adding up gradients adds. `transfers[i]` are the seconds in which stage i hands one
    micro-batch to the next. `idle` bytes stay free on the devices in use; `price` is dollars per second of
    all of them, None where a price is unknown.
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
        """Samples per second; none where it does not fit."""
        return self.batch / self.seconds if self.fits else 0.0

    @property
    def cost_per_sample(self) -> float | None:
        """Dollars; None where a price is unknown."""
        return None if self.price is None else self.price * self.seconds / self.batch


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


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A device for every node: `latency` in seconds of one pass, `used` bytes of every device in use.

    `busy` are seconds in which each of those computes; `alone` is the latency of all nodes on `fastest`, the
    fastest device, whether they fit there or not. `loss` is what was made small, see `loss_of`.
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
        """The loss that another way to run the same pass has, with so many bytes idle."""
        return loss(latency, self.alone, idle, self.devices, self.idle_weight)


def loss(latency: float, alone: float, idle: float, devices: Devices, idle_weight: float) -> float:
    """Equation (1) of the seed: latency relative to the fastest device alone, and idle memory as a share."""
    return latency / alone + idle_weight * idle / float(devices.memory.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The plan, its forecast, and its inputs; `method` found it in `seconds`.

    The plan's nodes are those of `graph`. `reasons` say in words why it is this plan, `alternatives` are
    other plans by name. Where nothing fits, it is the plan that comes nearest, and its forecast says so.
    Where latency counts, `placement` is a way to run branches side by side that is better than the plan.
    """

    plan: Plan
    forecast: Forecast
    graph: Graph
    devices: Devices
    recipe: Recipe
    method: str
    reasons: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, Forecast], ...] = ()
    seconds: float = 0.0
    placement: Placement | None = None
