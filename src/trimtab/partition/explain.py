"""A plan or placement in rows and sentences: stages and devices, bottlenecks, helpful changes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.core import format_bytes, format_duration, format_money
from trimtab.partition.devices import Devices
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Graph
from trimtab.partition.plan import DeviceUse, Plan, PlanForecast, Recipe, Solution
from trimtab.partition.problem import usable_memory

_NUMBERED = re.compile(r"(.*?)(\d+)")
_RANGE = re.compile(r".*?(\d+)–(\d+)")
_ENDS = ("input", "output")
PART = " (part)"


def layers_by_stage(graph: Graph, stage_of: Sequence[int], stages: int) -> tuple[tuple[str, ...], ...]:
    """For each stage the largest modules that it has as a whole, in order; a layer that is cut is a part."""
    inner = [(node, path) for node, path in enumerate(module_paths(graph)) if graph.kinds[node] not in _ENDS]
    first: dict[str, int] = {}
    cut = set()  # modules in more than one stage
    for node, path in inner:
        for depth in range(len(path) + 1):
            module = ".".join(path[:depth])
            if first.setdefault(module, stage_of[node]) != stage_of[node]:
                cut.add(module)
    layers: list[dict[str, None]] = [{} for _ in range(stages)]
    for node, path in inner:
        modules = (".".join(path[:depth]) for depth in range(1, len(path) + 1))
        outermost = next((module for module in modules if module not in cut), ".".join(path) + PART)
        layers[stage_of[node]][outermost if "" in cut else "the whole model"] = None
    return tuple(ranges(modules) for modules in layers)


def ranges(names: Iterable[str]) -> tuple[str, ...]:
    """Consecutively numbered names joined: h.0, h.1, h.2 as h.0–2."""
    runs: list[list[str]] = []
    previous = None
    for name in names:
        numbered = _NUMBERED.fullmatch(name)
        if previous and numbered and numbered[1] == previous[1] and int(numbered[2]) == int(previous[2]) + 1:
            runs[-1] = [runs[-1][0], numbered[2]]
        else:
            runs.append([name])
        previous = numbered
    return tuple("–".join(run) for run in runs)


def module_paths(graph: Graph) -> list[tuple[str, ...]]:
    """The path of every node's module, or its own name if it belongs to none."""
    both = zip(graph.blocks, graph.names, strict=True)
    return [tuple(block.split(".")) if block else (name,) for block, name in both]


_WORTH_NAMING = 1.02
_MOST_NAMED = 3


def would_help(graph: Graph, devices: Devices, recipe: Recipe, plan: Plan, forecast: PlanForecast) -> str:
    """The changes that help and the gain of each, best first: links, a kind of device, the batch."""
    changes = {
        "links twice as fast": (Devices(devices.devices, devices.bandwidth * 2, devices.latency / 2), plan),
        "twice the batch, in twice as many micro-batches": (
            devices,
            replace(plan, microbatches=plan.microbatches * 2),
        ),
    }
    for kind in dict.fromkeys(devices[use.device].kind for use in forecast.uses):
        faster = tuple(
            replace(
                device,
                peak={name: 2 * rate for name, rate in device.peak.items()},
                memory_bandwidth=2 * device.memory_bandwidth,
                cores=2 * device.cores,
            )
            if device.kind == kind
            else device
            for device in devices.devices
        )
        changes[f"every {kind} twice as fast"] = (Devices(faster, devices.bandwidth, devices.latency), plan)
    gains = {}
    for name, (others, changed) in changes.items():
        other = evaluate(graph, others, replace(recipe, batch=changed.batch), changed)
        gains[name] = (other.batch / other.seconds) / (forecast.batch / forecast.seconds)
    ranked = sorted(gains.items(), key=lambda gain: -gain[1])
    named = [f"{name} ({gain:.2f}×)" for name, gain in ranked if gain >= _WORTH_NAMING]
    if not named:
        return "no single change would help much: neither links nor devices nor the batch hold it back"
    return f"changes that would help most, in samples per second: {', '.join(named[:_MOST_NAMED])}"


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
        """The first and the last of many layers, and the longest range between them."""
        if len(self.layers) <= most:
            return ", ".join(self.layers)
        counts = {}
        for name in self.layers[1:-1]:
            match = _RANGE.fullmatch(name)
            counts[name] = int(match[2]) - int(match[1]) + 1 if match else 1
        longest = max(counts, key=lambda name: counts[name])
        between = [longest] if counts[longest] > 1 else []
        return " … ".join([self.layers[0], *between, self.layers[-1]])


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """Devices with equal work: bytes used, and usable bytes free, on each."""

    names: str
    stages: str
    used: float
    free: float
    busy: float


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan in words. `figures` are named numbers; `others` compares other plans, by name."""

    mix: str
    stages: tuple[StageRow, ...]
    devices: tuple[DeviceRow, ...]
    figures: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    others: tuple[tuple[str, str], ...]


def explained(solution: Solution) -> Explained:
    """The explanation of a solution's plan."""
    graph, devices, plan, forecast = solution.graph, solution.devices, solution.plan, solution.forecast
    helps = would_help(graph, devices, solution.recipe, plan, forecast)
    return Explained(
        mix(plan, solution.recipe.training),
        stage_rows(graph, devices, plan, forecast),
        device_rows(devices, forecast),
        figures(forecast, solution.recipe.training),
        (*solution.reasons, *limits(devices, plan, forecast), helps),
        tuple((name, _against(forecast, other)) for name, other in solution.alternatives),
    )


def mix(plan: Plan, training: bool = True) -> str:
    """The plan in one line: "3 stages × 2 replicas, 16 micro-batches of 4, 1f1b"."""
    stages = count(len(plan.stages), "stage")
    if plan.replicas > 1:
        stages += f" × {plan.replicas} replicas"
    if plan.tensor > 1:
        stages += f" × {plan.tensor} devices that share every product"
    samples = str(plan.shares[0]) if len(set(plan.shares)) == 1 else "+".join(map(str, plan.shares))
    per_replica = " for each replica" if plan.replicas > 1 and len(set(plan.shares)) == 1 else ""
    batches = f"{count(plan.microbatches, 'micro-batch', 'micro-batches')} of {samples}{per_replica}"
    parts = [stages, batches, *([plan.schedule] if training and len(plan.stages) > 1 else [])]
    if _SHARDED[plan.sharding]:
        parts.append(_SHARDED[plan.sharding])
    if plan.recompute:
        parts.append("activations computed again")
    return ", ".join(parts)


def device_names(devices: Devices, indices: Sequence[int]) -> str:
    """Names of devices, consecutive ones as ranges."""
    return ", ".join(ranges(devices[index].name for index in sorted(indices)))


def stage_labels(devices: Devices, plan: Plan) -> tuple[str, ...]:
    """The names of each stage's devices."""
    return tuple(device_names(devices, [d for rank in stage.ranks for d in rank]) for stage in plan.stages)


def stage_rows(graph: Graph, devices: Devices, plan: Plan, forecast: PlanForecast) -> tuple[StageRow, ...]:

    labels = stage_labels(devices, plan)
    times = zip(forecast.stage_forward, forecast.stage_backward, strict=True)
    layers = layers_by_stage(graph, plan.stage_of(len(graph)), len(plan.stages))

    def weights(nodes: Sequence[int]) -> float:
        """Number of weights of a stage, shared ones counted once."""
        twice = sum(max(0, len(set(nodes).intersection(t.nodes)) - 1) * t.parameters for t in graph.ties)
        return float(graph.parameters[list(nodes)].sum()) - twice

    return tuple(
        StageRow(
            number + 1,
            layers[number],
            labels[number],
            weights(stage.nodes),
            forward,
            backward,
            plan.microbatches * (forward + backward) / forecast.seconds,
        )
        for number, (stage, (forward, backward)) in enumerate(zip(plan.stages, times, strict=True))
    )


def alike(devices: Devices, forecast: PlanForecast) -> tuple[tuple[DeviceUse, ...], ...]:
    """Uses of devices, grouped by devices of a kind that run the same stages with the same memory."""
    groups: dict[tuple[object, ...], list[DeviceUse]] = {}
    for use in forecast.uses:
        device = devices[use.device]
        key = (device.kind, use.stages, f"{use.memory:.3g}", f"{usable_memory(device):.4g}")
        groups.setdefault(key, []).append(use)
    return tuple(tuple(uses) for uses in groups.values())


def device_rows(devices: Devices, forecast: PlanForecast) -> tuple[DeviceRow, ...]:
    """Devices in use; those of a kind with equal work share a row."""
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


def limits(devices: Devices, plan: Plan, forecast: PlanForecast) -> tuple[str, ...]:
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


def figures(forecast: PlanForecast, training: bool) -> tuple[tuple[str, str], ...]:
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


def _against(forecast: PlanForecast, other: PlanForecast) -> str:
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
    "Independent layers on different devices run at the same time: the time of a pass is that of the longest"
    " path through the model, including transfers between devices, not the sum of its layers."
)


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A device: its layers, bytes used, usable bytes free, and the share of the pass in which it computes."""

    device: str
    layers: tuple[str, ...]
    parameters: float
    used: float
    free: float
    busy: float

    def layers_in_short(self, most: int = 4) -> str:
        """The first few layers, and the number of the others."""
        more = len(self.layers) - most
        return ", ".join(self.layers[:most]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class ExplainedPlacement:
    """A placement in words; `figures` are named numbers, compared with other ways to run the same pass."""

    summary: str
    rows: tuple[PlacedRow, ...]
    figures: tuple[tuple[str, str], ...]


def explained_placement(solution: Solution) -> ExplainedPlacement | None:
    """The explanation of a solution's placement; None if it has none."""
    placed, in_stages, training = solution.placement, solution.forecast, solution.recipe.training
    if placed is None:
        return None
    graph, devices = placed.graph, placed.devices
    summary = (
        f"branches side by side on {count(len(placed.used), 'device')}: a pass takes"
        f" {format_duration(placed.latency)}"
    )
    if placed.latency < in_stages.latency:
        faster = in_stages.latency / placed.latency
        summary += f", {faster:.2f} times as fast as the best plan in stages"
    layers = layers_by_stage(graph, placed.device_of, len(devices))
    weights = np.bincount(placed.device_of, graph.parameters, len(devices)).tolist()
    rows = tuple(
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
    samples = count(solution.recipe.batch, "sample") + (", forward and back" if training else "")
    alone = f"{format_duration(placed.alone)} on {devices[placed.fastest].name}"
    idle = f"{format_bytes(placed.idle)} on the devices in use, {format_bytes(in_stages.idle)} in stages"
    named = (
        ("a pass", f"{format_duration(placed.latency)} for {samples}"),
        ("in stages", f"{format_duration(in_stages.latency)}: {mix(solution.plan, training)}"),
        ("one device", alone if placed.alone_fits else f"{alone}, where it does not fit"),
        ("idle memory", idle),
    )
    return ExplainedPlacement(summary, rows, named)
