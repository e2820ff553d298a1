"""The rule: step time and memory of a profiled model on any hardware, from formulas and the local run.

A local run corrects estimates for the same kind of device by the ratio of its measured to its estimated step.
A CPU run does not correct GPU estimates: over 25 models the error on a CPU says nothing about the error on an
H200 (`cpu_gpu_error_correlation` of `trimtab bench gpu-steps`), so there only the run's facts are used.
"""

from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator, find_accelerator
from trimtab.core import BadInputError, Model, Profile
from trimtab.predict.cost.constants import calibration, cpu_calibration, device_rates, gather, reference
from trimtab.predict.cost.demand import Quantity, demand_of
from trimtab.predict.cost.step_memory import memory_need, peak_memory
from trimtab.predict.cost.step_time import StepTime, cpu_step_time, step_time

Array = NDArray[np.float64]

# Drivers, contexts and fragmentation take their part before a tensor is allocated.
USABLE_DEVICE_MEMORY = 0.94
USABLE_HOST_MEMORY = 0.90

# A batch takes a moment to hand over even when it was ready: below this share of a step, loader workers kept
# up, and how busy they were is not known.
_LATE = 0.05


@dataclass(frozen=True, slots=True)
class ScaleOutAssumptions:
    """Rules of thumb that no local run can measure. Ratios unless said otherwise."""

    link_efficiency: float = 0.75
    """Share of a link's bandwidth that a ring all-reduce gets."""
    link_latency: float = 15e-6
    """Seconds per ring step and bucket between devices of one machine."""
    network_latency: float = 40e-6
    """Seconds per ring step and bucket between machines."""
    bucket: float = 25 * 2**20
    """Bytes that PyTorch's DistributedDataParallel reduces at once."""
    overlap: float = 0.45
    """Share of a step (most of the backward pass) during which gradients travel unnoticed."""
    exposed: float = 0.1
    """Share of the all-reduce that is never hidden: the last bucket."""


def all_reduce_seconds(
    gradient_bytes: Quantity,
    per_node: Quantity,
    nodes: Quantity,
    link: Quantity,
    network: Quantity,
    assume: ScaleOutAssumptions,
) -> Quantity:
    """Seconds of a ring all-reduce, first inside each node, then between nodes.

    A ring of n members sends 2(n-1)/n of the data over each link. `link` and `network` in bytes/s per
    device and per node, one direction.
    """
    buckets = np.maximum(1.0, np.ceil(np.asarray(gradient_bytes) / assume.bucket))
    inside = 2 * (per_node - 1) / per_node * gradient_bytes / (assume.link_efficiency * link)
    between = 2 * (nodes - 1) / nodes * gradient_bytes / (assume.link_efficiency * network)
    latency = 2 * (per_node - 1) * assume.link_latency + 2 * (nodes - 1) * assume.network_latency
    return inside + between + latency * buckets


def exposed_seconds(all_reduce: Quantity, step: Quantity, assume: ScaleOutAssumptions) -> Quantity:
    """The part of an all-reduce that the backward pass does not hide."""
    return np.maximum(all_reduce - assume.overlap * step, assume.exposed * all_reduce)


def input_seconds(
    serial: bool, cpu_seconds_per_sample: float, batch: Quantity, cores_per_device: Quantity, step: Quantity
) -> Quantity:
    """Time a step waits for its data.

    Loaded in the training process (`serial`) it always waits; with loader workers, only for what they do not
    finish during the step.
    """
    load = cpu_seconds_per_sample * np.asarray(batch)
    if serial:
        return load + 0.0 * np.asarray(step)
    return np.maximum(0.0, load / np.maximum(1.0, cores_per_device) - step)


def restart_factor(
    interruptions_per_hour: float, nodes: Quantity, restart: float, checkpoint_every: float
) -> Quantity:
    """Expected stretch of a job on spot machines: losing any node costs a restart and half an interval."""
    lost = restart + checkpoint_every / 2
    return 1.0 + interruptions_per_hour / 3600.0 * np.asarray(nodes, dtype=float) * lost


# How much of a GPU's correction, as an exponent, is taken over to another GPU.
_ELSEWHERE = 0.5
# A profile that says only how long steps waited on average may say more than its median step took.
_LEAST_BUSY = 0.05


@dataclass(frozen=True, slots=True)
class Correction:
    """`factor` on estimated times; `exact` where it was measured on the very device it is applied to."""

    factor: float = 1.0
    exact: bool = False


def correction_on_cpu(profile: Profile, model: Model) -> Correction:
    """How a CPU estimate is corrected: fully, if the run was on a CPU."""
    seconds = _measured_seconds(profile, "cpu")
    if seconds is None or profile.steps is None:
        return Correction()
    demand = demand_of(model, float(profile.steps.batch_size), True, "fp32")
    cores = profile.host.cores / max(1, profile.steps.workers)
    return Correction(seconds / float(cpu_step_time(demand, cores).total), True)


def correction_on(target: Accelerator, profile: Profile, model: Model) -> Correction:
    """How an accelerator's estimate is corrected: fully on the run's own, in part on others.

    The run is compared with the estimate at its own precision, whichever is asked for elsewhere.
    """
    seconds = _measured_seconds(profile, "cuda")
    local = find_accelerator(profile.host.gpus[0]) if profile.host.gpus else None
    if seconds is None or profile.steps is None or local is None:
        return Correction()
    demand = demand_of(model, float(profile.steps.batch_size), True, model.precision)
    estimated = step_time(demand, device_rates(local, model.precision), calibration(local).step).total
    ratio = seconds / float(estimated)
    return Correction(ratio, True) if local.name == target.name else Correction(ratio**_ELSEWHERE)


def _measured_seconds(profile: Profile, kind: str) -> float | None:
    """Median seconds of an undisturbed step, without its wait for data."""
    steps = profile.steps
    if steps is None or not steps.seconds or steps.device != kind:
        return None
    if steps.busy:
        return steps.busy
    return max(median(steps.seconds) - steps.input_wait, _LEAST_BUSY * median(steps.seconds))


@dataclass(frozen=True, slots=True)
class Placements:
    """Where a step might run, as columns: `device` indexes `devices`, -1 for the CPU of the node itself.

    `cores`, `memory` (bytes) and `network` (bytes/s) are the node's; `batch` is samples per device.
    """

    devices: tuple[str, ...]
    device: NDArray[np.intp]
    per_node: Array
    nodes: Array
    cores: Array
    memory: Array
    network: Array
    batch: Array


@dataclass(frozen=True, slots=True)
class StepEstimates:
    """Columns again: seconds of a step in parts that add up to `total`, and memory per device in bytes.

    `low` and `high` are factors on the time that hold the truth in 90 % of cases; the need for memory is at
    most `memory_high` in 95 %. `known` is False where
    nothing is known of the device; the other columns mean nothing there. `measured` says that the constants
    or the correction were measured on this very kind of device.
    """

    total: Array
    launch: Array
    compute: Array
    traffic: Array
    update: Array
    network: Array
    input: Array
    memory: Array
    memory_high: Array
    memory_limit: Array
    low: Array
    high: Array
    known: NDArray[np.bool_]
    measured: NDArray[np.bool_]

    def taken(self, rows: NDArray[np.intp]) -> "StepEstimates":
        """The named rows, in that order."""
        return StepEstimates(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def kinds(*columns: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One row of each combination of values in the columns, and which of these every row is."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        numbers = column.astype(np.int64)
        if (numbers != column).any():
            numbers = np.unique(column, return_inverse=True)[1]
        code = code * (int(numbers.max(initial=0)) + 2) + numbers + 1
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind


class AnalyticEstimator:
    """Estimates for one profile. `precision` overrides the number format seen in the run."""

    name = "analytic"

    def __init__(
        self, profile: Profile, precision: str | None = None, assume: ScaleOutAssumptions | None = None
    ) -> None:
        if profile.model is None:
            raise BadInputError(
                f"the profile of {profile.workload.name!r} has no facts about a model, so its speed elsewhere"
                " cannot be estimated; profile a script that trains with PyTorch"
            )
        if not profile.model.operators or profile.model.forward_flop_per_sample <= 0:
            raise BadInputError(
                f"the profile of {profile.workload.name!r} has no traced step; profile it for longer (--for)"
                " so that a few steps complete"
            )
        self._profile = profile
        self.model = profile.model
        self.precision = precision or profile.model.precision
        self._assume = assume or ScaleOutAssumptions()

    def estimate(self, where: Placements) -> StepEstimates:
        """Step time and memory at every placement."""
        on_cpu = where.device < 0
        # Before network and input, a step depends on the device and the batch alone.
        first, kind = kinds(where.device, where.batch)
        one = self._on_accelerator(where.devices, where.device[first], where.batch[first]).taken(kind)
        if on_cpu.any():
            one = _choose(on_cpu, self._on_cpu(where), one)
        network = self._network_seconds(where, one.total)
        waiting = self._input_seconds(where, one.total)
        return replace(one, total=one.total + network + waiting, network=network, input=waiting)

    def _on_accelerator(
        self, devices: tuple[str, ...], index: NDArray[np.intp], batch: Array
    ) -> StepEstimates:
        """One device each, before network and input."""
        facts = [find_accelerator(name) for name in devices]
        # Unknown devices and CPUs borrow the reference's row so that all columns have one length.
        table = [a if a is not None and _has_rate(a) else reference() for a in facts] + [reference()]
        fits = [calibration(a) for a in table]
        corrections = [correction_on(a, self._profile, self.model) for a in table]

        def column(values: list[Any]) -> NDArray[Any]:
            return np.array(values)[index]

        step = step_time(
            demand_of(self.model, batch, True, self.precision),
            gather([device_rates(a, self.precision) for a in table], index),
            gather([f.step for f in fits], index),
        ).scaled(column([c.factor for c in corrections]))
        need = memory_need(self.model, batch, True, self.precision)
        exact = column([c.exact for c in corrections])
        # A correction measured on the very device leaves about half of the error, in log terms.
        power = np.where(exact, 0.5, 1.0)
        memory = np.asarray(peak_memory(need, gather([f.memory for f in fits], index)))
        return StepEstimates(
            **_parts(step),
            memory=memory,
            memory_high=memory * column([f.memory_error[1] for f in fits]),
            memory_limit=column([a.memory * USABLE_DEVICE_MEMORY for a in table]),
            low=column([f.time_error[0] for f in fits]) ** power,
            high=column([f.time_error[1] for f in fits]) ** power,
            known=column([a is not None and _has_rate(a) for a in facts] + [False]),
            measured=column([f.measured for f in fits]) | exact,
        )

    def _on_cpu(self, where: Placements) -> StepEstimates:
        """The node's CPU, before network and input."""
        fixed = correction_on_cpu(self._profile, self.model)
        demand = demand_of(self.model, where.batch, True, "fp32")
        step = cpu_step_time(demand, where.cores).scaled(fixed.factor)
        known = cpu_calibration()
        low, high = known.corrected_error if fixed.exact else known.uncorrected_error
        rows = len(where.device)
        memory = self._host_memory(where)
        return StepEstimates(
            **_parts(step),
            memory=memory,
            memory_high=memory * known.memory_error,
            memory_limit=where.memory * USABLE_HOST_MEMORY,
            low=np.full(rows, low),
            high=np.full(rows, high),
            known=np.ones(rows, dtype=np.bool_),
            measured=np.full(rows, fixed.exact),
        )

    def _host_memory(self, where: Placements) -> Array:
        """Bytes that the local run needed, with activations grown or shrunk to the batch."""
        steps = self._profile.steps
        local_batch, workers = (steps.batch_size, steps.workers) if steps else (1, 1)
        observed = max(self._profile.series.memory, default=0.0) / max(1, workers)
        extra = self.model.saved_sample_bytes * (where.batch - local_batch)
        least = 2 * self.model.parameter_bytes + self.model.optimizer_state_bytes
        return np.maximum(observed + extra, least)

    def _network_seconds(self, where: Placements, step: Array) -> Array:
        facts = [find_accelerator(name) for name in where.devices]
        slowest = 1e9
        links = np.array([a.interconnect.bandwidth if a else slowest for a in facts] + [slowest])
        reduce = all_reduce_seconds(
            self.model.parameter_bytes,
            where.per_node,
            where.nodes,
            links[where.device],
            where.network,
            self._assume,
        )
        return np.asarray(exposed_seconds(reduce, step, self._assume))

    def _input_seconds(self, where: Placements, step: Array) -> Array:
        steps = self._profile.steps
        if steps is None or steps.input_wait <= 0 or not steps.seconds:
            return np.zeros_like(step)
        step_seconds = median(steps.seconds)
        serial = steps.loader_workers == 0 or steps.input_wait < _LATE * step_seconds
        # Loader workers that were late were busy all along: a sample costs them the whole step.
        local_cores = max(1.0, min(steps.loader_workers, self._profile.host.cores / max(1, steps.workers)))
        busy = steps.input_wait if serial else step_seconds * local_cores
        cores = np.minimum(where.cores / where.per_node, max(1, steps.loader_workers))
        return np.asarray(input_seconds(serial, busy / steps.batch_size, where.batch, cores, step))


def _has_rate(target: Accelerator) -> bool:
    """Whether the formulas apply: a floating-point peak is known."""
    return any(target.peak.get(f) for f in ("fp32", "tf32", "bf16", "fp16"))


def _parts(step: StepTime) -> dict[str, Array]:
    parts = {f.name: np.asarray(getattr(step, f.name), dtype=float) for f in fields(step)}
    nothing = np.zeros_like(parts["total"])
    return {**parts, "network": nothing, "input": nothing}


def _choose(mask: NDArray[np.bool_], yes: StepEstimates, no: StepEstimates) -> StepEstimates:
    return StepEstimates(
        **{f.name: np.where(mask, getattr(yes, f.name), getattr(no, f.name)) for f in fields(StepEstimates)}
    )
