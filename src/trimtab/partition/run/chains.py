"""Layers in a row, cut into stages as they are: for models that cannot be exported."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trimtab.core import BadInputError
from trimtab.partition.plan import Plan
from trimtab.partition.run.dropout import WithoutDropout, stop_dropout
from trimtab.partition.run.stage_module import StageFacts, StageModule, TensorFacts


class Chain(nn.Module):
    """Some layers in a row, called with their weights, their buffers, and what arrives."""

    def __init__(self, layers: nn.Sequential, names: Sequence[str], dropout: bool) -> None:
        super().__init__()
        self._layers = (layers,)  # in a tuple, so that their weights are not the stage's a second time
        self._names = tuple(names)
        self._dropout = dropout

    def forward(self, *values: Tensor) -> tuple[Any, ...]:
        """What the last layer returns."""
        held = dict(zip(self._names, values, strict=False))
        arriving = values[len(self._names) :]
        if self._dropout:
            return (functional_call(self._layers[0], held, arriving),)
        with WithoutDropout():
            return (functional_call(self._layers[0], held, arriving),)


def chain_stages(
    model: nn.Sequential, operations: Sequence[str], plan: Plan, example: Tensor, *, dropout: bool
) -> list[StageModule]:
    """The layers of a model split as planned; refuses a plan that cuts through one of them."""
    where = _stage_of_each(model, operations, plan)
    layers = copy.deepcopy(model)
    if not dropout:
        stop_dropout(layers)
    canonical = _first_names(model)
    arriving = _facts("input", example, False)
    trained = False
    stages = []
    value = example
    for number in range(len(plan.stages)):
        own = [name for name, stage in where.items() if stage == number]
        part = nn.Sequential(*(layers.get_submodule(name) for name in own))
        with torch.no_grad():
            value = part(value)
        if not isinstance(value, Tensor):
            raise BadInputError(f"layer {own[-1]} returns no single tensor; --run cannot hand it on")
        weights = {f"{i}.{key}": f"{name}.{key}" for i, name, key in _held(layers, own, "parameters")}
        buffers = {f"{i}.{key}": f"{name}.{key}" for i, name, key in _held(layers, own, "buffers")}
        needed = {name: model.get_parameter(name).requires_grad for name in weights.values()}
        trained = trained or any(needed.values())
        leaving = _facts(f"stage_{number}", value, trained)
        facts = StageFacts(
            number=number,
            weights=tuple((canonical[name], flag) for name, flag in needed.items()),
            buffers=tuple(buffers.values()),
            constants=(),
            loaded=(0,) if number == 0 else (),
            received=() if number == 0 else (arriving,),
            handed_on=(leaving,),
            mutated=(),
        )
        chain = Chain(part.to("meta"), [*weights, *buffers], dropout)
        stages.append(StageModule(chain, facts))
        arriving = leaving
    return stages


def chain_state(model: nn.Sequential) -> dict[str, Tensor]:
    """Weights and buffers by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _stage_of_each(model: nn.Sequential, operations: Sequence[str], plan: Plan) -> dict[str, int]:
    """The stage of every layer; one that the graph does not know follows the one before."""
    planned = plan.stage_of(len(operations))
    where: dict[str, int] = {}
    before = 0
    for layer, _ in model.named_children():
        found = {
            stage
            for name, stage in zip(operations, planned, strict=True)
            if name == layer or name.startswith(layer + ".")
        }
        if len(found) > 1:
            raise BadInputError(
                f"the plan cuts through layer {layer}, but a model that torch.export cannot trace "
                "can only be cut between its layers"
            )
        before = where[layer] = max(before, *found) if found else before
    empty = set(range(len(plan.stages))) - set(where.values())
    if empty:
        raise BadInputError(f"stage {min(empty)} has no layer of its own; plan with fewer stages")
    return where


def _held(model: nn.Module, layers: Sequence[str], kind: str) -> list[tuple[int, str, str]]:
    """Weights or buffers of some layers: the layer's place, its name, and the name inside of it."""
    return [
        (place, name, key)
        for place, name in enumerate(layers)
        for key, _ in getattr(model.get_submodule(name), f"named_{kind}")()
    ]


def _first_names(model: nn.Module) -> dict[str, str]:
    """The first name of every weight, for each that it has."""
    first = {id(value): name for name, value in model.named_parameters()}
    return {name: first[id(value)] for name, value in model.named_parameters(remove_duplicate=False)}


def _facts(name: str, value: Tensor, trained: bool) -> TensorFacts:
    return TensorFacts(name, tuple(value.shape), value.dtype, trained and value.is_floating_point())
