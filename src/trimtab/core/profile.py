"""A profile: measurements of a short local run of a workload, and facts about its model."""

from dataclasses import dataclass, field

from trimtab.core.workload import Workload

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
class Model:
    """Facts about a model that hold on any hardware. Sizes in bytes (fp32), FLOP as 2 per multiply-add.

    `saved_…` is what the forward pass keeps for the backward pass: fixed plus per sample.
    `input_shape` and `output_shape` leave the batch dimension out. `precision` is the number format of the
    matrix products in the run: fp32, tf32, fp16, bf16.
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


@dataclass(frozen=True, slots=True)
class Steps:
    """How the training loop went: one entry of `seconds` per undisturbed step of the first worker.

    `batch_size` is samples per worker and step; `device` is "cpu" or "cuda"; `input_wait` is the mean time a
    step waited for its data, `busy` the median of what was left of a step without its wait. `dataset_length`,
    `epochs` and `total_steps` (per worker, for the whole job) are None where the script did not show them.
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
