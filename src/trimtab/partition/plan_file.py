"""A plan as a JSON document, with everything that is needed to run it, and its forecast."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from trimtab.core import BadInputError, StrictModel, validate
from trimtab.partition.devices import Device, Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Plan, PlanForecast, Recipe, Schedule, Sharding, Stage

FORMAT = "trimtab partition plan 1"


@dataclass(frozen=True, slots=True, eq=False)
class PlanDocument:
    """A plan with the model's name, operations and builder, the devices, recipe and forecast."""

    model: str
    target: str | None
    operations: tuple[str, ...]
    plan: Plan
    recipe: Recipe
    devices: Devices
    forecast: PlanForecast | None


def plan_json(
    plan: Plan,
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    forecast: PlanForecast | None = None,
    target: str | None = None,
) -> str:
    """The document. Numbers that are not finite are written as strings, which `read_plan` parses."""
    document = {
        "format": FORMAT,
        "model": graph.name,
        "target": target,
        "recipe": asdict(recipe),
        "schedule": plan.schedule,
        "microbatches": plan.microbatches,
        "shares": plan.shares,
        "sharding": plan.sharding,
        "recompute": plan.recompute,
        "stages": [
            {
                "devices": stage.ranks,
                "modules": list(dict.fromkeys(graph.blocks[node] for node in stage.nodes)),
                "nodes": [graph.names[node] for node in stage.nodes],
            }
            for stage in plan.stages
        ],
        "devices": [{**asdict(device), "peak": dict(device.peak)} for device in devices.devices],
        "bandwidth": devices.bandwidth.tolist(),
        "latency": devices.latency.tolist(),
        "forecast": None if forecast is None else asdict(forecast),
        "operations": graph.names,
    }
    return json.dumps(_finite(document), indent=1, allow_nan=False) + "\n"


class _StageEntry(StrictModel):
    """A stage: `devices` by replica; `modules` are for readers only."""

    devices: tuple[tuple[int, ...], ...]
    nodes: tuple[str, ...]
    modules: tuple[str, ...] = ()


class _PlanFile(StrictModel, allow_inf_nan=True):
    format: Literal["trimtab partition plan 1"]
    model: str
    target: str | None
    recipe: Recipe
    schedule: Schedule
    microbatches: Annotated[int, Field(ge=1)]
    shares: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    sharding: Sharding
    recompute: bool
    stages: Annotated[tuple[_StageEntry, ...], Field(min_length=1)]
    devices: tuple[Device, ...]
    bandwidth: list[list[float]]
    latency: list[list[float]]
    forecast: PlanForecast | None
    operations: tuple[str, ...]


def read_plan(text: str, where: str = "the plan") -> PlanDocument:
    """The plan in a document; errors call it `where`."""
    try:
        written = json.loads(text)
    except ValueError as error:
        raise BadInputError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        raise BadInputError(f'{where} is not a plan; its "format" must be "{FORMAT}"')
    file = validate(_PlanFile, written, where)
    place = {name: number for number, name in enumerate(file.operations)}
    stages = tuple(_stage_of(entry, place, len(file.devices), where) for entry in file.stages)
    if sorted(node for stage in stages for node in stage.nodes) != list(range(len(place))):
        raise BadInputError(f"{where} does not run every operation in exactly one stage")
    plan = Plan(stages, file.shares, file.microbatches, file.schedule, file.sharding, file.recompute)
    for number, stage in enumerate(stages):
        if len(stage.ranks) != plan.replicas or {len(rank) for rank in stage.ranks} != {plan.tensor}:
            raise BadInputError(
                f"{where}: stage {number} must have {plan.replicas} replicas of {plan.tensor} devices each"
            )
    devices = Devices(file.devices, np.array(file.bandwidth), np.array(file.latency))
    return PlanDocument(file.model, file.target, file.operations, plan, file.recipe, devices, file.forecast)


def _stage_of(entry: _StageEntry, place: Mapping[str, int], devices: int, where: str) -> Stage:
    unknown = [name for name in entry.nodes if name not in place]
    if unknown:
        raise BadInputError(f'{where} has no operation called "{unknown[0]}"')
    strange = [device for rank in entry.devices for device in rank if not 0 <= device < devices]
    if strange:
        raise BadInputError(f"{where} has no device {strange[0]}; it names {devices}, counted from 0")
    return Stage(tuple(place[name] for name in entry.nodes), entry.devices)


def _finite(value: Any) -> Any:
    """The value with infinite numbers, which JSON cannot represent, as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
