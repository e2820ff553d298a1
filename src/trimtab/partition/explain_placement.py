"""A placement in rows and sentences: which layers run where, side by side, and what that gives."""

from dataclasses import dataclass

from trimtab.core import format_bytes, format_duration
from trimtab.partition.explain import count, mix
from trimtab.partition.layer_names import layers_by_stage
from trimtab.partition.placement import Placement
from trimtab.partition.problem import usable_memory
from trimtab.partition.solution import Solution

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
