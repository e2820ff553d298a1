"""A way to split a model over devices, and what is asked of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trimtab.core import BadInputError

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
    """What a plan does with one device: bytes by purpose, and seconds it computes in a step."""

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
    """What to expect of a plan: seconds of a step and their range, memory per device, what limits it.

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
