"""The rule: step time and memory of a profiled model on any hardware, from formulas and the local run.

A local run corrects estimates for the same kind of device by the ratio of its measured to its estimated step.
A CPU run does not correct GPU estimates: over 25 models the error on a CPU says nothing about the error on an
H200 (`cpu_gpu_error_correlation` of `trimtab bench gpu-steps`), so there only the run's facts are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator, find_accelerator
from trimtab.core import BadInputError, Model, Profile
from trimtab.predict.cost.constants import (
    calibration,
    cpu_calibration,
    device_rates,
    few_steps_factor,
    gather,
    reference,
)
from trimtab.predict.cost.demand import (
    TRAINING_FLOP_PER_FORWARD_FLOP,
    Quantity,
    demand_of,
    divided,
    is_half,
)
from trimtab.predict.cost.scale_out import (
    Layouts,
    ScaleOutAssumptions,
    blocks_of,
    network_seconds,
    passes_factor,
    straggler_factor,
)
from trimtab.predict.cost.step_memory import memory_need, peak_memory, spread_memory
from trimtab.predict.cost.step_time import StepTime, amdahl, cpu_step_time, step_time
from trimtab.predict.cost.traced import traced_demand
from trimtab.predict.cost.traced_fit import shipped_traced, traced_rows
from trimtab.predict.tables import Array, take_rows

# Drivers, contexts and fragmentation take their part before a tensor is allocated.
USABLE_DEVICE_MEMORY = 0.94
USABLE_HOST_MEMORY = 0.90
_SLOWEST_LINK = 1e9  # bytes/s, of a device that is not known

# Even a batch that is ready takes a moment to hand over: below this share of a step, loader workers kept up,
# and how busy they were is not known.
_LATE = 0.05


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
# The mean wait for data in a profile may exceed its median step; at least this share of a step is work.
_LEAST_BUSY = 0.05


@dataclass(frozen=True, slots=True)
class Correction:
    """`factor` on estimated times; `exact` where it was measured on the very device it is applied to.

    `noise` is the factor by which an interval grows each way because few steps were measured.
    """

    factor: float = 1.0
    exact: bool = False
    noise: float = 1.0


def correction_on_cpu(profile: Profile, model: Model) -> Correction:
    """Correction of an estimate for a CPU: full, if the run was on a CPU."""
    seconds = _measured_seconds(profile, "cpu")
    if seconds is None or profile.steps is None:
        return Correction()
    demand = demand_of(model, float(profile.steps.batch_size), True, "fp32")
    cores = local_cores(profile)
    if seconds < least_on_cpu(model, profile.steps.batch_size, cores):
        return Correction()  # no arithmetic was done: the tensors were fake
    noise = few_steps_factor(len(profile.steps.seconds))
    return Correction(seconds / float(cpu_step_time(demand, cores).total), True, noise)


def time_by_threads(profile: Profile, cores: Array) -> Array | None:
    """Time of a step on `cores` over that on the local ones, by Amdahl's law through the measured steps.

    None unless the run was made at two or more thread counts.
    """
    runs = [run for run in (profile.steps.by_threads if profile.steps else ()) if run.seconds]
    if len({run.threads for run in runs}) < 2:
        return None
    shares = 1.0 / np.array([run.threads for run in runs], dtype=float)
    parallel, serial = np.polyfit(shares, [median(run.seconds) for run in runs], 1)
    parallel, serial = max(float(parallel), 0.0), max(float(serial), 0.0)
    total = max(parallel + serial, 1e-300)
    return np.asarray(amdahl(parallel / total, cores) / amdahl(parallel / total, local_cores(profile)))


def local_cores(profile: Profile) -> float:
    """Cores of the local machine for each worker of the run."""
    return profile.host.cores / max(1, profile.steps.workers if profile.steps else 1)


def correction_on(target: Accelerator, profile: Profile, model: Model) -> Correction:
    """Correction of an estimate for an accelerator: full on the run's own, partial on others.

    The run is compared with the estimate at the run's precision.
    """
    seconds = _measured_seconds(profile, "cuda")
    local = find_accelerator(profile.host.gpus[0]) if profile.host.gpus else None
    if seconds is None or profile.steps is None or local is None:
        return Correction()
    if seconds < least_on(local, model, profile.steps.batch_size, model.precision):
        return Correction()  # no arithmetic was done: the tensors were fake
    batch = np.array([float(profile.steps.batch_size)])
    estimated = _one_device(model, [local], np.zeros(1, dtype=np.intp), batch, model.precision).step.total
    ratio = seconds / float(np.asarray(estimated).item())
    noise = few_steps_factor(len(profile.steps.seconds))
    if local.name == target.name:
        return Correction(ratio, True, noise)
    return Correction(ratio**_ELSEWHERE, noise=noise**_ELSEWHERE)


def least_on(target: Accelerator, model: Model, batch: Quantity, precision: str) -> Quantity:
    """Seconds of a step at the device's peak rate and bandwidth: no real step is faster."""
    formats = (precision, "fp16", "bf16") if is_half(precision) else ("tf32", "fp32")
    peak = max(target.peak.get(name, 0.0) for name in formats) or max(target.peak.values())
    return np.maximum(_least_flop(model) * batch / peak, _least_bytes(model) / target.memory_bandwidth)


def least_on_cpu(model: Model, batch: Quantity, cores: Quantity) -> Quantity:
    """Seconds of a step at the peak rate and bandwidth of so many virtual cores."""
    known = cpu_calibration()
    return np.maximum(
        _least_flop(model) * batch / (known.core_peak * np.asarray(cores)),
        _least_bytes(model) / (known.core_bandwidth * np.asarray(cores)),
    )


def _least_flop(model: Model) -> float:
    """FLOP of a step per sample, without the arithmetic that PyTorch's counter adds for groups."""
    dense = TRAINING_FLOP_PER_FORWARD_FLOP * model.forward_flop_per_sample
    return min(dense, model.step_flop_per_sample) or dense


def _least_bytes(model: Model) -> float:
    """Bytes of a step that no cache saves where weights are many: they are read, and written once."""
    return 2.0 * model.parameter_bytes + model.optimizer_state_bytes


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSteps:
    """Steps on one device each, as columns: seconds, their ranges as factors, and whether it was measured."""

    step: StepTime
    low: Array
    high: Array
    measured: NDArray[np.bool_]


def _one_device(
    model: Model,
    devices: Sequence[Accelerator],
    index: NDArray[np.intp],
    batch: Array,
    precision: str,
    tensor: Array | float = 1.0,
) -> DeviceSteps:
    """Training steps on one device, before network and input: `index` says on which of `devices`.

    It is one of `tensor` devices that share every product.

    A profile whose calls were traced is estimated by the laws of traced steps; one of an earlier version,
    which has only totals by kind, by the formula of totals.
    """
    laws = shipped_traced()
    if model.calls and laws is not None and laws.ranges is not None:
        step = laws.step(traced_rows(traced_demand(model), batch, devices, index, precision, tensor=tensor))
        ends = [laws.ranges.of(device.name, "train") for device in devices]
        measured = [f"{device.name}|train" in laws.ranges.spreads for device in devices]
    else:
        fits = [calibration(device) for device in devices]
        rates = gather([device_rates(device, precision) for device in devices], index)
        constants = gather([fit.step for fit in fits], index)
        step = step_time(divided(demand_of(model, batch, True, precision), tensor), rates, constants)
        ends, measured = [fit.time_error for fit in fits], [fit.measured for fit in fits]
    low, high = np.array(ends)[index].T
    return DeviceSteps(step, low, high, np.array(measured)[index])


def time_range(device: Accelerator) -> tuple[float, float]:
    """(low, high) of truth over estimate of training steps on a device, in nine cases of ten."""
    laws = shipped_traced()
    if laws is not None and laws.ranges is not None:
        return laws.ranges.of(device.name, "train")
    return calibration(device).time_error


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

    `cores`, `memory` (bytes) and `network` (bytes/s) are the node's; `batch` is samples per replica, which is
    a device unless `layouts` spread the model over several. Without `layouts` all rows are data-parallel.
    """

    devices: tuple[str, ...]
    device: NDArray[np.intp]
    per_node: Array
    nodes: Array
    cores: Array
    memory: Array
    network: Array
    batch: Array
    layouts: Layouts | None = None

    def at(self, rows: NDArray[Any]) -> "Placements":
        """These rows, in this order; rows may repeat."""
        names = ("device", "per_node", "nodes", "cores", "memory", "network", "batch")
        columns = {name: getattr(self, name)[rows] for name in names}
        return Placements(self.devices, **columns, layouts=self.layouts.at(rows) if self.layouts else None)


@dataclass(frozen=True, slots=True)
class StepEstimates:
    """Columns: seconds of a step in parts that add up to `total`, and memory per device in bytes.

    `low` and `high` are factors on the time that hold the truth in 90 % of cases; `least` are the seconds
    that the device's peaks allow at best. The need for memory is at most `memory_high` in 95 % of cases.
    `known` is False where the device is unknown; the other columns mean nothing there. `measured` is True
    where constants or correction were measured on this very kind of device.
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
    least: Array
    known: NDArray[np.bool_]
    measured: NDArray[np.bool_]


def at_least(step: StepEstimates) -> StepEstimates:
    """The estimates with totals and intervals raised to what the device's peaks allow."""
    short = np.maximum(step.least - step.total, 0.0)
    total = step.total + short
    low = np.minimum(np.maximum(step.low, step.least / np.maximum(total, 1e-300)), 1.0)
    return replace(step, total=total, compute=step.compute + short, low=low)


def widened(low: Quantity, high: Quantity, factor: Quantity) -> tuple[Array, Array]:
    """An interval's factors, with a further independent uncertainty by `factor` each way."""
    extra = np.log(factor) ** 2
    return (
        np.asarray(np.exp(-np.sqrt(np.log(low) ** 2 + extra))),
        np.asarray(np.exp(np.sqrt(np.log(high) ** 2 + extra))),
    )


def choose(
    mask: NDArray[np.bool_], yes: StepEstimates, no: StepEstimates, names: Sequence[str] = ()
) -> StepEstimates:
    """`no`, with the named columns of `yes`, or all, where the mask is true."""
    if not mask.any():
        return no
    chosen = names or [f.name for f in fields(no)]
    return replace(no, **{name: np.where(mask, getattr(yes, name), getattr(no, name)) for name in chosen})


def kinds(*columns: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first row of each combination of values in the columns, and the combination's index by row."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        numbers = column.astype(np.int64)
        if (numbers != column).any():
            numbers = np.unique(column, return_inverse=True)[1]
        code = code * (int(numbers.max(initial=0)) + 2) + numbers + 1
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return first, kind


class AnalyticEstimator:
    """Estimates for one profile. `precision` overrides the number format of the run."""

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
        on_cpu = where.device < 0
        layouts = where.layouts or Layouts.plain(len(where.device))
        samples = where.batch / layouts.microbatches
        # Before network and input, a pass depends on the device and the samples alone.
        first, kind = kinds(where.device, samples, layouts.tensor)
        one = take_rows(
            self._on_accelerator(where.devices, where.device[first], samples[first], layouts.tensor[first]),
            kind,
        )
        if on_cpu.any():
            one = choose(on_cpu, self._on_cpu(where), one)
        if not layouts.is_plain.all():
            one = self._spread(one, where, layouts)
        accelerators = [find_accelerator(name) for name in where.devices]
        links = np.array([a.interconnect.bandwidth if a else _SLOWEST_LINK for a in (*accelerators, None)])
        network = network_seconds(
            self.model,
            layouts,
            where.batch,
            where.per_node,
            where.nodes,
            links[where.device],
            where.network,
            one.total,
            self.precision,
            self._assume,
        )
        waiting = self._input_seconds(where, one.total)
        # The slowest of several devices sets the pace of all: its delay is time that the others wait.
        waits = (one.total + network) * (straggler_factor(where.per_node * where.nodes, self._assume) - 1.0)
        network = network + np.asarray(waits)
        several = where.per_node * where.nodes > 1
        return at_least(
            replace(
                one,
                total=one.total + network + waiting,
                network=network,
                input=waiting,
                low=np.where(several, widened(one.low, 1.0, 1 / self._assume.scaling_low)[0], one.low),
                high=np.where(several, widened(1.0, one.high, self._assume.scaling_high)[1], one.high),
            )
        )

    def _spread(self, one: StepEstimates, where: Placements, layouts: Layouts) -> StepEstimates:
        """Times and memory of one device, of those that hold a replica together, from whole passes on one."""
        spread = ~layouts.is_plain & (where.device >= 0)
        fused = np.where(spread & (blocks_of(self.model) is not None), self._assume.spread_time, 1.0)
        launch, compute, traffic = (fused * factor for factor in passes_factor(layouts))
        replicas = np.maximum(1.0, where.per_node * where.nodes / layouts.parts)
        update = layouts.trained_share / layouts.pipeline / np.where(layouts.sharding > 0, replicas, 1.0)
        launch, compute = one.launch * launch, one.compute * compute
        traffic, update = one.traffic * traffic, one.update * update
        fits = [calibration(a) for a in self._table(where.devices)]
        memory = spread_memory(
            self.model,
            layouts,
            where.batch,
            replicas,
            self.precision,
            gather([f.memory for f in fits], where.device),
        )
        error = np.array([f.memory_error[1] for f in fits])[where.device]
        return replace(
            one,
            launch=launch,
            compute=compute,
            traffic=traffic,
            update=update,
            total=launch + compute + traffic + update,
            least=one.least * layouts.microbatches / layouts.pipeline,
            memory=np.where(spread, memory, one.memory),
            memory_high=np.where(spread, memory * error, one.memory_high),
        )

    @staticmethod
    def _table(devices: tuple[str, ...]) -> list[Accelerator]:
        """Facts of the devices and of a last row; what is unknown, and CPUs, borrow the reference's."""
        facts = [find_accelerator(name) for name in devices]
        return [a if a is not None and _has_rate(a) else reference() for a in (*facts, None)]

    def _on_accelerator(
        self, devices: tuple[str, ...], index: NDArray[np.intp], batch: Array, tensor: Array
    ) -> StepEstimates:
        """One device per row, of `tensor` that share products, before network and input."""
        facts = [find_accelerator(name) for name in devices]
        table = self._table(devices)
        fits = [calibration(a) for a in table]
        corrections = [correction_on(a, self._profile, self.model) for a in table]

        def column(values: list[Any]) -> NDArray[Any]:
            return np.array(values)[index]

        alone = _one_device(self.model, table, index, batch, self.precision, tensor)
        step = alone.step.scaled(column([c.factor for c in corrections]))
        need = memory_need(self.model, batch, True, self.precision)
        exact = column([c.exact for c in corrections])
        # A correction measured on the very device leaves about half of the error, in log terms.
        power = np.where(exact, 0.5, 1.0)
        memory = np.asarray(peak_memory(need, gather([f.memory for f in fits], index)))
        noise = column([c.noise for c in corrections])
        low, high = widened(alone.low**power, alone.high**power, noise)
        per_sample = column([float(least_on(a, self.model, 1.0, self.precision)) for a in table])
        weights = column([float(least_on(a, self.model, 0.0, self.precision)) for a in table])
        return StepEstimates(
            **_parts(step),
            memory=memory,
            memory_high=memory * column([f.memory_error[1] for f in fits]),
            memory_limit=column([a.memory * USABLE_DEVICE_MEMORY for a in table]),
            low=low,
            high=high,
            least=np.maximum(per_sample * batch, weights) / tensor,
            known=column([a is not None and _has_rate(a) for a in (*facts, None)]),
            measured=alone.measured | exact,
        )

    def _on_cpu(self, where: Placements) -> StepEstimates:
        """The node's CPU, before network and input."""
        correction, known = correction_on_cpu(self._profile, self.model), cpu_calibration()
        demand = demand_of(self.model, where.batch, True, "fp32")
        step = cpu_step_time(demand, where.cores).scaled(correction.factor)
        measured = time_by_threads(self._profile, where.cores)
        if correction.exact and measured is not None:
            law = step.total / (cpu_step_time(demand, local_cores(self._profile)).total * correction.factor)
            step = step.scaled((measured / law) ** known.thread_weight)
        low, high = known.corrected_error if correction.exact else known.uncorrected_error
        # Away from the local number of cores the law that divides the work adds its own error.
        away = np.abs(np.log2(where.cores / local_cores(self._profile))) if correction.exact else 0.0
        spread = np.exp(known.doubling_error * np.asarray(away) + 0.0 * where.cores) * correction.noise
        lows, highs = widened(low, high, spread)
        rows = len(where.device)
        # Bytes that the local run needed, with activations grown or shrunk to the batch.
        steps = self._profile.steps
        local_batch, workers = (steps.batch_size, steps.workers) if steps else (1, 1)
        observed = max(self._profile.series.memory, default=0.0) / max(1, workers)
        extra = self.model.saved_sample_bytes * (where.batch - local_batch)
        least = 2 * self.model.parameter_bytes + self.model.optimizer_state_bytes
        memory = np.maximum(observed + extra, least)
        return StepEstimates(
            **_parts(step),
            memory=memory,
            memory_high=memory * known.memory_error,
            memory_limit=where.memory * USABLE_HOST_MEMORY,
            low=lows,
            high=highs,
            least=np.asarray(least_on_cpu(self.model, where.batch, where.cores)),
            known=np.ones(rows, dtype=np.bool_),
            measured=np.full(rows, correction.exact),
        )

    def _input_seconds(self, where: Placements, step: Array) -> Array:
        steps = self._profile.steps
        if steps is None or steps.input_wait <= 0 or not steps.seconds:
            return np.zeros_like(step)
        step_seconds = median(steps.seconds)
        serial = steps.loader_workers == 0 or steps.input_wait < _LATE * step_seconds
        # Loader workers that were late were busy all along: a sample costs them the complete step.
        local_cores = max(1.0, min(steps.loader_workers, self._profile.host.cores / max(1, steps.workers)))
        busy = steps.input_wait if serial else step_seconds * local_cores
        cores = np.minimum(where.cores / where.per_node, max(1, steps.loader_workers))
        return np.asarray(input_seconds(serial, busy / steps.batch_size, where.batch, cores, step))


def _has_rate(target: Accelerator) -> bool:
    """Whether the formulas apply: a floating-point peak is known."""
    return any(target.peak.get(f) for f in ("fp32", "tf32", "bf16", "fp16"))


def _parts(step: StepTime) -> dict[str, Array]:
    parts = {f.name: np.asarray(getattr(step, f.name), dtype=float) for f in fields(step)}
    return {**parts, "network": 0.0 * parts["total"], "input": 0.0 * parts["total"]}
