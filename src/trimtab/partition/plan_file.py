"""A plan as a JSON document: everything that is needed to run it, and what was expected of it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trimtab.core import BadInputError
from trimtab.partition.devices import Device, Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import DeviceUse, Forecast, Plan, Recipe, Stage

FORMAT = "trimtab partition plan 1"


@dataclass(frozen=True, slots=True, eq=False)
class PlanDocument:
    """A plan with all it refers to: the model's name, operations and builder, devices, recipe, forecast."""

    model: str
    target: str | None
    operations: tuple[str, ...]
    plan: Plan
    recipe: Recipe
    devices: Devices
    forecast: Forecast | None


def plan_json(
    plan: Plan,
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    forecast: Forecast | None = None,
    target: str | None = None,
) -> str:
    """The document. Numbers that are not finite are written as words, which `read_plan` understands."""
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
        "stages": [_stage(stage, graph) for stage in plan.stages],
        "devices": [{**asdict(device), "peak": dict(device.peak)} for device in devices.devices],
        "bandwidth": devices.bandwidth.tolist(),
        "latency": devices.latency.tolist(),
        "forecast": None if forecast is None else asdict(forecast),
        "operations": graph.names,
    }
    return json.dumps(_finite(document), indent=1, allow_nan=False) + "\n"


def read_plan(text: str, where: str = "the plan") -> PlanDocument:
    """The plan in a document; `where` is what to call it in errors."""
    try:
        told = json.loads(text)
    except ValueError as error:
        raise BadInputError(f"{where} is no JSON: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise BadInputError(f'{where} is no plan; its "format" must be "{FORMAT}"')
    try:
        return _document(told, where)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise BadInputError(f"{where} is no whole plan: {what}") from None


def _stage(stage: Stage, graph: Graph) -> dict[str, Any]:
    return {
        "devices": stage.ranks,
        "modules": list(dict.fromkeys(graph.blocks[node] for node in stage.nodes)),
        "nodes": [graph.names[node] for node in stage.nodes],
    }


def _finite(value: Any) -> Any:
    """The value with numbers that JSON cannot write as words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _document(told: dict[str, Any], where: str) -> PlanDocument:
    operations = tuple(str(name) for name in told["operations"])
    place = {name: number for number, name in enumerate(operations)}
    stages = tuple(_told_stage(each, place, len(told["devices"]), where) for each in told["stages"])
    placed = sorted(node for stage in stages for node in stage.nodes)
    if placed != list(range(len(operations))):
        raise BadInputError(f"{where} does not run every operation in exactly one stage")
    plan = Plan(
        stages=stages,
        shares=tuple(int(share) for share in told["shares"]),
        microbatches=int(told["microbatches"]),
        schedule=_one_of(told["schedule"], ("gpipe", "1f1b"), "schedule", where),
        sharding=_one_of(told["sharding"], ("none", "optimizer", "full"), "sharding", where),
        recompute=bool(told["recompute"]),
    )
    _check_shape(plan, where)
    return PlanDocument(
        model=str(told["model"]),
        target=told["target"],
        operations=operations,
        plan=plan,
        recipe=Recipe(**told["recipe"]),
        devices=_devices(told),
        forecast=None if told["forecast"] is None else _forecast(told["forecast"]),
    )


def _told_stage(told: Mapping[str, Any], place: Mapping[str, int], devices: int, where: str) -> Stage:
    unknown = [name for name in told["nodes"] if name not in place]
    if unknown:
        raise BadInputError(f'{where} has no operation called "{unknown[0]}"')
    ranks = tuple(tuple(int(device) for device in rank) for rank in told["devices"])
    strange = [device for rank in ranks for device in rank if not 0 <= device < devices]
    if strange:
        raise BadInputError(f"{where} has no device {strange[0]}; it names {devices}, counted from 0")
    return Stage(tuple(place[name] for name in told["nodes"]), ranks)


def _check_shape(plan: Plan, where: str) -> None:
    """Every stage must have all replicas, all of the same width, and shares must be of samples."""
    if not plan.stages or not plan.shares or min(plan.shares) < 1 or plan.microbatches < 1:
        raise BadInputError(f"{where} needs a stage, and at least one sample per replica and micro-batch")
    for number, stage in enumerate(plan.stages):
        if len(stage.ranks) != plan.replicas or {len(rank) for rank in stage.ranks} != {plan.tensor}:
            raise BadInputError(
                f"{where}: stage {number} must have {plan.replicas} replicas of {plan.tensor} devices each"
            )


def _devices(told: Mapping[str, Any]) -> Devices:
    rows = [Device(**{**row, "peak": _floats(row["peak"])}) for row in told["devices"]]
    return Devices(tuple(rows), _matrix(told["bandwidth"]), _matrix(told["latency"]))


def _forecast(told: Mapping[str, Any]) -> Forecast:
    uses = tuple(DeviceUse(**{**_numbers(use), "stages": tuple(use["stages"])}) for use in told["uses"])
    rows = {
        name: tuple(float(each) for each in told[name])
        for name in ("stage_forward", "stage_backward", "transfers")
    }
    return Forecast(**{**_numbers(told), **rows, "uses": uses})


def _numbers(told: Mapping[str, Any]) -> dict[str, Any]:
    """The entries, numbers that were written as words read again."""
    return {key: float(value) if isinstance(value, str) else value for key, value in told.items()}


def _floats(told: Mapping[str, Any]) -> dict[str, float]:
    return {str(key): float(value) for key, value in told.items()}


def _matrix(rows: Sequence[Sequence[Any]]) -> Any:
    return np.array([[float(each) for each in row] for row in rows], dtype=np.float64)


def _one_of(value: Any, allowed: Sequence[str], what: str, where: str) -> Any:
    if value not in allowed:
        raise BadInputError(f'{where}: no {what} is called "{value}"; there are {", ".join(allowed)}')
    return value
