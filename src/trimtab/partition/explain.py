"""What a plan does, in rows and sentences: who runs what, what limits it, what would help."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.core import format_bytes, format_duration, format_money
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.layer_names import layers_by_stage, ranges, row_length
from trimtab.partition.plan import DeviceUse, Forecast, Plan
from trimtab.partition.problem import usable_memory
from trimtab.partition.solution import Solution
from trimtab.partition.what_if import would_help

_SHARDED = {
    "none": "",
    "optimizer": "optimizer state sharded over the replicas",
    "full": "weights, gradients and optimizer state sharded over the replicas",
}


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage: its layers and devices, seconds per micro-batch, the share of a step in which it computes."""

    number: int
    layers: tuple[str, ...]
    devices: str
    parameters: float
    forward: float
    backward: float
    busy: float

    def layers_in_short(self, most: int = 3) -> str:
        """The first and the last of many layers, and the longest row between them."""
        if len(self.layers) <= most:
            return ", ".join(self.layers)
        longest = max(self.layers[1:-1], key=row_length)
        between = [longest] if row_length(longest) > 1 else []
        return " … ".join([self.layers[0], *between, self.layers[-1]])


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """Devices that do the same: bytes used, and free of what can be used, on each."""

    names: str
    stages: str
    used: float
    free: float
    busy: float


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan in words. `figures` are named numbers; `others` what other plans would give, by their name."""

    mix: str
    stages: tuple[StageRow, ...]
    devices: tuple[DeviceRow, ...]
    figures: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    others: tuple[tuple[str, str], ...]


def explained(found: Solution) -> Explained:
    """All that there is to say about a plan."""
    graph, devices, plan, forecast = found.graph, found.devices, found.plan, found.forecast
    helps = would_help(graph, devices, found.recipe, plan, forecast)
    return Explained(
        mix(plan, found.recipe.training),
        stage_rows(graph, devices, plan, forecast),
        device_rows(devices, forecast),
        figures(forecast, found.recipe.training),
        (*found.reasons, *limits(devices, plan, forecast), helps),
        tuple((name, _against(forecast, other)) for name, other in found.alternatives),
    )


def mix(plan: Plan, training: bool = True) -> str:
    """The plan in one line: "3 stages × 2 replicas, 16 micro-batches of 4, 1f1b"."""
    stages = count(len(plan.stages), "stage")
    if plan.replicas > 1:
        stages += f" × {plan.replicas} replicas"
    if plan.tensor > 1:
        stages += f" × {plan.tensor} devices that share every product"
    samples = str(plan.shares[0]) if len(set(plan.shares)) == 1 else "+".join(map(str, plan.shares))
    each = " for each replica" if plan.replicas > 1 and len(set(plan.shares)) == 1 else ""
    batches = f"{count(plan.microbatches, 'micro-batch', 'micro-batches')} of {samples}{each}"
    parts = [stages, batches, *([plan.schedule] if training and len(plan.stages) > 1 else [])]
    if _SHARDED[plan.sharding]:
        parts.append(_SHARDED[plan.sharding])
    if plan.recompute:
        parts.append("activations computed again")
    return ", ".join(parts)


def device_names(devices: Devices, indices: Sequence[int]) -> str:
    """Names of devices, rows of them as ranges."""
    return ", ".join(ranges(devices[index].name for index in sorted(indices)))


def stage_labels(devices: Devices, plan: Plan) -> tuple[str, ...]:
    """For each stage, who runs it."""
    return tuple(device_names(devices, [d for rank in stage.ranks for d in rank]) for stage in plan.stages)


def stage_rows(graph: Graph, devices: Devices, plan: Plan, forecast: Forecast) -> tuple[StageRow, ...]:
    """All stages, in order."""
    labels = stage_labels(devices, plan)
    times = zip(forecast.stage_forward, forecast.stage_backward, strict=True)
    layers = layers_by_stage(graph, plan.stage_of(len(graph)), len(plan.stages))
    return tuple(
        StageRow(
            number + 1,
            layers[number],
            labels[number],
            _parameters(graph, stage.nodes),
            forward,
            backward,
            plan.microbatches * (forward + backward) / forecast.seconds,
        )
        for number, (stage, (forward, backward)) in enumerate(zip(plan.stages, times, strict=True))
    )


def alike(devices: Devices, forecast: Forecast) -> tuple[tuple[DeviceUse, ...], ...]:
    """What is done with devices in use, those of a kind that do the same together."""
    found: dict[tuple[object, ...], list[DeviceUse]] = {}
    for use in forecast.uses:
        device = devices[use.device]
        key = (device.kind, use.stages, f"{use.memory:.3g}", f"{usable_memory(device):.4g}")
        found.setdefault(key, []).append(use)
    return tuple(tuple(uses) for uses in found.values())


def device_rows(devices: Devices, forecast: Forecast) -> tuple[DeviceRow, ...]:
    """Devices in use; those of a kind that do the same share a row."""
    return tuple(
        DeviceRow(
            device_names(devices, [use.device for use in uses]),
            ", ".join(ranges(str(stage + 1) for stage in uses[0].stages)),
            uses[0].memory,
            usable_memory(devices[uses[0].device]) - uses[0].memory,
            uses[0].busy / forecast.seconds,
        )
        for uses in alike(devices, forecast)
    )


def limits(devices: Devices, plan: Plan, forecast: Forecast) -> tuple[str, ...]:
    """What the step time comes from: the slowest part, how even the stages are, how much they wait."""
    loads = [f + b for f, b in zip(forecast.stage_forward, forecast.stage_backward, strict=True)]
    labels = stage_labels(devices, plan)
    slowest = max(range(len(loads)), key=loads.__getitem__)
    lines = []
    if forecast.transfers and max(forecast.transfers) > loads[slowest]:
        link = max(range(len(forecast.transfers)), key=forecast.transfers.__getitem__)
        lines.append(
            f"the link from stage {link + 1} ({labels[link]}) to stage {link + 2} ({labels[link + 1]}) sets"
            f" the pace: {format_duration(forecast.transfers[link])} for each micro-batch, against"
            f" {format_duration(loads[slowest])} of the slowest stage"
        )
    elif len(loads) > 1:
        mean = sum(loads) / len(loads)
        lines.append(
            f"stage {slowest + 1} ({labels[slowest]}) sets the pace: {format_duration(loads[slowest])} for"
            f" each micro-batch; the mean of all stages is {mean / loads[slowest]:.0%} of that"
        )
    if len(loads) > 1:
        lines.append(
            f"stages wait {forecast.bubble:.0%} of the time: {format_duration(forecast.latency)} pass before"
            f" the first micro-batch is through, each further one adds {format_duration(forecast.bottleneck)}"
        )
    if forecast.synchronisation > 0.02 * forecast.seconds:
        share = forecast.synchronisation / forecast.seconds
        lines.append(
            f"adding up gradients and updating weights takes {format_duration(forecast.synchronisation)},"
            f" {share:.0%} of a step"
        )
    fullest = min(forecast.uses, key=lambda use: usable_memory(devices[use.device]) - use.memory)
    free = usable_memory(devices[fullest.device]) - fullest.memory
    lines.append(
        f"{devices[fullest.device].name} has the least memory left: {format_bytes(free)}"
        f" of {format_bytes(usable_memory(devices[fullest.device]))}"
    )
    return tuple(lines)


def figures(forecast: Forecast, training: bool) -> tuple[tuple[str, str], ...]:
    """The plan's numbers, named."""
    cost = forecast.cost_per_sample
    return (
        (
            "a step" if training else "a batch",
            f"{format_duration(forecast.seconds)} ({format_duration(forecast.low)} to"
            f" {format_duration(forecast.high)}) for {forecast.batch:,} samples",
        ),
        ("throughput", _samples(forecast.batch / forecast.seconds)),
        (
            "cost",
            "unknown: a device has no price" if cost is None else f"{format_money(cost * 1e6)} per million",
        ),
        *((("waiting", f"{forecast.bubble:.0%} of the stages' time"),) if forecast.transfers else ()),
        (
            "idle memory",
            f"{format_bytes(forecast.idle)} on {count(len(forecast.uses), 'device')} in use",
        ),
    )


def _parameters(graph: Graph, nodes: Sequence[int]) -> float:
    """Weights of a stage, those that it uses twice counted once."""
    inside = set(nodes)
    total = float(graph.parameters[list(nodes)].sum()) if nodes else 0.0
    return total - sum(max(0, len(inside.intersection(t.nodes)) - 1) * t.parameters for t in graph.ties)


def _against(forecast: Forecast, other: Forecast) -> str:
    if not other.fits:
        if other.short <= 0:
            return "needs a link that is not there"
        return f"does not fit: {format_bytes(other.short)} too much on its fullest device"
    ratio = other.throughput / (forecast.batch / forecast.seconds)
    return f"{format_duration(other.seconds)}, {_samples(other.throughput)}, {ratio:.2f}× of this"


def _samples(rate: float) -> str:
    return f"{rate:,.0f} samples/s" if rate >= 1000 else f"{rate:.4g} samples/s"


def count(number: int, one: str, several: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
