"""Workloads and their profiles; offers, and configurations to run a workload on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum


class Kind(StrEnum):
    """Purpose of a workload."""

    TRAINING = "training"
    INFERENCE = "inference"
    BATCH = "batch"


DEFAULT_TENANT = "default"
"""Tenant of records that no tenant in particular owns: all that local commands write."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A command to run. `deadline` is in seconds from submission; a higher `priority` goes first."""

    name: str
    kind: Kind = Kind.TRAINING
    tenant: str = DEFAULT_TENANT
    priority: int = 0
    deadline: float | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type in a region, with the price it had on `price_date`. Prices are dollars per second.

    `network` is the instance's bandwidth to its peers in bytes per second, one direction.
    """

    cloud: str
    region: str
    instance: str
    vcpus: float
    memory: float
    accelerator: str | None
    accelerators: int
    price: float
    spot_price: float | None
    network: float
    price_date: date

    @property
    def key(self) -> str:
        """The offer's name: "aws/us-east-1/p5.48xlarge"."""
        return f"{self.cloud}/{self.region}/{self.instance}"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a model is spread over devices, and how memory is saved; the default is plain data parallelism.

    `sharding` is the state that replicas share out: none, optimizer (ZeRO 1), gradients too (ZeRO 2) or full
    (weights too: ZeRO 3, FSDP). `tensor` devices share every product; a replica is a pipeline of `pipeline`
    stages, and takes its batch in `microbatches`. With `recompute`, activations are computed again in the
    backward pass (checkpointing). `adapter_rank` above zero trains adapters (LoRA) instead of the weights.
    """

    sharding: str = "none"
    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 1
    recompute: bool = False
    eight_bit_optimizer: bool = False
    adapter_rank: int = 0

    @property
    def name(self) -> str:
        """Such as "FSDP, tensor 8, checkpointing"; empty for plain data parallelism."""
        words = [
            {"none": "", "optimizer": "ZeRO-1", "gradients": "ZeRO-2", "full": "FSDP"}[self.sharding],
            f"tensor {self.tensor}" if self.tensor > 1 else "",
            f"pipeline {self.pipeline}" if self.pipeline > 1 else "",
            f"{self.microbatches} micro-batches" if self.microbatches > 1 else "",
            "checkpointing" if self.recompute else "",
            "8-bit optimizer" if self.eight_bit_optimizer else "",
            f"LoRA {self.adapter_rank}" if self.adapter_rank else "",
        ]
        return ", ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Configuration:
    """A way to run a workload: an offer, how many nodes of it, a batch size, spot or not, parallelism.

    `batch_size` is samples per replica and step; a replica is one device unless tensor or pipeline
    parallelism spreads it over several.
    """

    offer: Offer
    nodes: int
    batch_size: int
    spot: bool
    parallel: Parallelism = Parallelism()

    @property
    def devices(self) -> int:
        """Number of devices: accelerators, or nodes where there are none."""
        return self.nodes * max(1, self.offer.accelerators)

    @property
    def replicas(self) -> int:
        """Number of data-parallel replicas of the model."""
        return max(1, self.devices // (self.parallel.tensor * self.parallel.pipeline))

    @property
    def price(self) -> float:
        """Dollars per second for all nodes."""
        spot = self.offer.spot_price
        return self.nodes * (spot if self.spot and spot is not None else self.offer.price)

    @property
    def key(self) -> str:
        """The configuration's name: "aws/us-east-1/p5.48xlarge x2 b64 spot FSDP"."""
        spread = f" {self.parallel.name}" if self.parallel.name else ""
        return f"{self.offer.key} x{self.nodes} b{self.batch_size}{' spot' if self.spot else ''}{spread}"


PROFILE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Host:
    """The machine the run was made on. `cores` is what the run could use; memory in bytes."""

    cpu: str
    cores: float
    memory: float
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """Resource samples, one entry per column at each `time` (seconds since the start of the run).

    `cpu` in cores, `memory` in bytes, the four rates in bytes per second, `gpu` as a share of one device
    summed over devices, `gpu_memory` in bytes. GPU columns are empty where there is none.
    """

    time: tuple[float, ...] = ()
    cpu: tuple[float, ...] = ()
    memory: tuple[float, ...] = ()
    disk_read: tuple[float, ...] = ()
    disk_write: tuple[float, ...] = ()
    network_in: tuple[float, ...] = ()
    network_out: tuple[float, ...] = ()
    gpu: tuple[float, ...] = ()
    gpu_memory: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """A module without children: its path in the model, its type and its own parameters."""

    name: str
    type: str
    parameters: int


@dataclass(frozen=True, slots=True)
class Operators:
    """All operator calls of one kind in one phase of a step, as linear functions of the batch size.

    `calls` per step; bytes read and written by the operators in fp32 without fusion:
    `fixed_bytes + batch * sample_bytes`, of which `written_sample_bytes` per sample are results.
    Kinds: conv, matmul, attention, norm, embedding, pool, softmax, rnn, copy, view, elementwise.
    Phases: forward, backward, optimizer.
    """

    phase: str
    kind: str
    calls: float
    fixed_bytes: float
    sample_bytes: float
    written_sample_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """Equal calls of one operator in one phase of the traced step. FLOP and bytes are those of one call.

    `operator` is PyTorch's name without "aten."; `kind` is one of `Operators` or reduction, gather, scatter;
    `dtype` is the number format of its first floating-point operand, `calls` how often the step makes it.
    Bytes are in the run's number formats without fusion; `fixed_bytes` of them (weights, their gradients, the
    optimizer's state) are the same at any batch size. `sizes` names the call's dimensions (m, n, k, batch of
    a product; see docs/reference/profile-file.md); the one that `scales` names grows with the batch size.
    """

    phase: str
    operator: str
    kind: str
    dtype: str
    calls: float
    flop: float
    read_bytes: float
    written_bytes: float
    fixed_bytes: float
    sizes: Mapping[str, int]
    scales: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """Facts about a model that hold on any hardware. Sizes in bytes (fp32), FLOP as 2 per multiply-add.

    `saved_…` is what the forward pass keeps for the backward pass: fixed plus per sample.
    `input_shape` and `output_shape` leave the batch dimension out. `precision` is the number format of the
    matrix products in the run: fp32, tf32, fp16, bf16.

    `calls` are the operator calls of one step of `traced_batch` samples in `micro_batches` forward passes.
    `peak_live_bytes` is the largest sum of tensors, made in its forward and backward passes, that were alive
    at once, gradients included, in the run's number formats. `trained_parameters` get gradients. These are 0
    or empty in profiles of earlier versions.
    """

    parameters: int
    parameter_bytes: float
    buffer_bytes: float
    modules: int
    layers: tuple[Layer, ...]
    optimizer: str | None
    optimizer_state_bytes: float
    precision: str
    forward_flop_per_sample: float
    step_flop_per_sample: float
    saved_fixed_bytes: float
    saved_sample_bytes: float
    input_shape: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()
    input_bytes_per_sample: float = 0.0
    output_bytes_per_sample: float = 0.0
    operators: tuple[Operators, ...] = ()
    calls: tuple[OperatorCall, ...] = ()
    traced_batch: int = 0
    micro_batches: int = 1
    peak_live_bytes: float = 0.0
    trained_parameters: int = 0


@dataclass(frozen=True, slots=True)
class ThreadSteps:
    """Seconds of undisturbed steps in a run that could use `threads` CPUs of the host."""

    threads: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The training loop: one entry of `seconds` per undisturbed step of the first worker.

    `batch_size` is samples per worker and optimizer step, over all micro-batches whose gradients accumulate;
    `device` is "cpu", "cuda", or "meta" for a model without numbers, which has no step times. `input_wait` is
    the mean time a step waited for its data, `busy` the median of what was left of a step without its wait.
    `load_seconds` is the mean time that one loader worker (the script itself without workers) takes to make
    a batch, `loaded_samples` how many samples are in it. `dataset_length`, `epochs` and `total_steps` (per
    worker, for the whole job) are None where the script did not show them. `by_threads` has a run for each
    number of CPUs that was asked for.
    """

    seconds: tuple[float, ...]
    batch_size: int
    workers: int
    device: str
    input_wait: float = 0.0
    busy: float | None = None
    loader_workers: int = 0
    dataset_length: int | None = None
    epochs: float | None = None
    total_steps: int | None = None
    peak_device_memory: float | None = None
    load_seconds: float | None = None
    loaded_samples: int | None = None
    by_threads: tuple[ThreadSteps, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """Measurements of a short run. `created` is seconds since the epoch; `window` and `every` in seconds.

    `method` is how the run was watched: cgroup-v1, cgroup-v2 or process-tree. `ended` says how it ended:
    "exited", "interrupted" (SIGINT), "terminated" (SIGTERM), "killed" (SIGKILL); `status` is its exit status.
    """

    id: str
    created: float
    workload: Workload
    host: Host
    window: float
    every: float
    method: str
    ended: str
    status: int
    series: Series
    model: Model | None = None
    steps: Steps | None = None
    notes: tuple[str, ...] = ()
    version: int = field(default=PROFILE_VERSION)
