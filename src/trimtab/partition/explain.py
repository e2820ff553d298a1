"""A plan or placement in rows and sentences: who runs what, what limits it, what would help."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trimtab.core import format_bytes, format_duration, format_money
from trimtab.partition.devices import Device, Devices
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Graph
from trimtab.partition.plan import DeviceUse, Forecast, Placement, Plan, Recipe, Solution
from trimtab.partition.problem import usable_memory

_NUMBERED = re.compile(r"(.*?)(\d+)")
_RANGE = re.compile(r".*?(\d+)–(\d+)")
_ENDS = ("input", "output")
PART = " (part)"


def layers_by_stage(graph: Graph, stage_of: Sequence[int], stages: int) -> tuple[tuple[str, ...], ...]:
    """For each stage the largest modules that it has as a whole, in order; a layer that is cut is a part."""
    cut = _cut_modules(graph, stage_of)
    found: list[dict[str, None]] = [{} for _ in range(stages)]
    for node, path in enumerate(module_paths(graph)):
        if graph.kinds[node] not in _ENDS:
            found[stage_of[node]][_largest(path, cut)] = None
    return tuple(ranges(modules) for modules in found)


def ranges(names: Iterable[str]) -> tuple[str, ...]:
    """Names that only count up joined: h.0, h.1, h.2 as h.0–2."""
    found: list[list[str]] = []
    for name in names:
        if found and _follows(found[-1][-1], name):
            found[-1].append(name)
        else:
            found.append([name])
    return tuple(_joined(run) for run in found)


def row_length(name: str) -> int:
    """How many modules a name like h.0–2 stands for."""
    match = _RANGE.fullmatch(name)
    return int(match[2]) - int(match[1]) + 1 if match else 1


def module_paths(graph: Graph) -> list[tuple[str, ...]]:
    """The path of every node's module, or its own name where it belongs to none."""
    both = zip(graph.blocks, graph.names, strict=True)
    return [tuple(block.split(".")) if block else (name,) for block, name in both]


def _cut_modules(graph: Graph, stage_of: Sequence[int]) -> set[str]:
    """Modules that lie in more than one stage."""
    first: dict[str, int] = {}
    cut = set()
    for node, path in enumerate(module_paths(graph)):
        if graph.kinds[node] in _ENDS:
            continue
        for depth in range(len(path) + 1):
            module = ".".join(path[:depth])
            if first.setdefault(module, stage_of[node]) != stage_of[node]:
                cut.add(module)
    return cut


def _largest(path: tuple[str, ...], cut: set[str]) -> str:
    """The outermost module around a node that is not cut."""
    if "" not in cut:
        return "the whole model"
    modules = (".".join(path[:depth]) for depth in range(1, len(path) + 1))
    return next((module for module in modules if module not in cut), ".".join(path) + PART)


def _follows(before: str, name: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    return bool(first and second and first[1] == second[1] and int(second[2]) == int(first[2]) + 1)


def _joined(run: Sequence[str]) -> str:
    if len(run) == 1:
        return run[0]
    last = _NUMBERED.fullmatch(run[-1])
    return f"{run[0]}–{last[2]}" if last else run[0]


_WORTH_NAMING = 1.02
_MOST_NAMED = 3


def would_help(graph: Graph, devices: Devices, recipe: Recipe, plan: Plan, forecast: Forecast) -> str:
    """The changes that help and what each gives, best first: links, a kind of device, the batch."""
    changes = {
        "links twice as fast": (Devices(devices.devices, devices.bandwidth * 2, devices.latency / 2), plan),
        "twice the batch, in twice as many micro-batches": (
            devices,
            replace(plan, microbatches=plan.microbatches * 2),
        ),
    }
    for kind in dict.fromkeys(devices[use.device].kind for use in forecast.uses):
        faster = tuple(_twice_as_fast(d) if d.kind == kind else d for d in devices.devices)
        changes[f"every {kind} twice as fast"] = (Devices(faster, devices.bandwidth, devices.latency), plan)
    gains = {}
    for name, (others, changed) in changes.items():
        other = evaluate(graph, others, replace(recipe, batch=changed.batch), changed)
        gains[name] = (other.batch / other.seconds) / (forecast.batch / forecast.seconds)
    ranked = sorted(gains.items(), key=lambda gain: -gain[1])
    named = [f"{name} ({gain:.2f}×)" for name, gain in ranked if gain >= _WORTH_NAMING]
    if not named:
        return "nothing alone would help much: neither links nor devices nor the batch hold it back"
    return f"what would help most, in samples per second: {', '.join(named[:_MOST_NAMED])}"


def _twice_as_fast(device: Device) -> Device:
    return replace(
        device,
        peak={name: 2 * rate for name, rate in device.peak.items()},
        memory_bandwidth=2 * device.memory_bandwidth,
        cores=2 * device.cores,
    )


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
    """Uses of devices, grouped by devices of a kind that run the same stages with the same memory."""
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
    """Sentences on the step time: slowest stage or link, bubble, gradients, and the fullest device."""
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


HOW_PLACED = (
    "Layers on different devices that do not need one another run at the same time: what counts is the"
    " longest way through the model, with what is sent between devices, not the sum of its layers."
)


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A device: its layers, bytes used and free of what can be used, the share of the pass it computes."""

    device: str
    layers: tuple[str, ...]
    parameters: float
    used: float
    free: float
    busy: float

    def layers_in_short(self, most: int = 4) -> str:
        """The first few, and how many more there are."""
        more = len(self.layers) - most
        return ", ".join(self.layers[:most]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class ExplainedPlacement:
    """A placement in words; `figures` are named numbers, with those of other ways to run the same pass."""

    summary: str
    rows: tuple[PlacedRow, ...]
    figures: tuple[tuple[str, str], ...]


def explained_placement(found: Solution) -> ExplainedPlacement | None:
    """All that there is to say about a solution's placement; None where it has none."""
    placed = found.placement
    if placed is None:
        return None
    devices = count(len(placed.used), "device")
    faster = found.forecast.latency / placed.latency
    summary = f"branches side by side on {devices}: a pass takes {format_duration(placed.latency)}"
    if placed.latency < found.forecast.latency:
        summary += f", {faster:.2f} times as fast as the best plan in stages"
    return ExplainedPlacement(summary, placed_rows(placed), _figures(found, placed))


def placed_rows(placed: Placement) -> tuple[PlacedRow, ...]:
    """Every device in use."""
    graph, devices = placed.graph, placed.devices
    layers = layers_by_stage(graph, placed.device_of, len(devices))
    weights = [0.0] * len(devices)
    for node, device in enumerate(placed.device_of):
        weights[device] += float(graph.parameters[node])
    return tuple(
        PlacedRow(
            devices[device].name,
            layers[device],
            weights[device],
            used,
            usable_memory(devices[device]) - used,
            placed.busy[device] / placed.latency,
        )
        for device, used in placed.used.items()
    )


def _figures(found: Solution, placed: Placement) -> tuple[tuple[str, str], ...]:
    alone = f"{format_duration(placed.alone)} on {placed.devices[placed.fastest].name}"
    training = found.recipe.training
    idle, beside = format_bytes(placed.idle), format_bytes(found.forecast.idle)
    return (
        (
            "a pass",
            f"{format_duration(placed.latency)} for {count(found.recipe.batch, 'sample')}"
            f"{', forward and back' if training else ''}",
        ),
        ("in stages", f"{format_duration(found.forecast.latency)}: {mix(found.plan, training)}"),
        ("one device", alone if placed.alone_fits else f"{alone}, where it does not fit"),
        ("idle memory", f"{idle} on the devices in use, {beside} in stages"),
    )
