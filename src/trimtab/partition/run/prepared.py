"""A model made ready to run as planned: built for real, captured at each share's size, cut into stages."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from trimtab.core import BadInputError
from trimtab.partition.capture.builder import Built, load_builder, resized
from trimtab.partition.capture.capturing import Captured, arguments_of, capture_model
from trimtab.partition.plan import Plan
from trimtab.partition.run.ranks import Ties, shared_weights
from trimtab.partition.run.samples import (
    InputFacts,
    Outputs,
    UserFunctions,
    inputs_of,
    outputs_of,
    user_functions,
)
from trimtab.partition.run.stage_module import StageFacts, StageModule, TensorFacts
from trimtab.partition.run.stages import exported, stage_modules

_DROPS = (
    nn.functional.dropout,
    nn.functional.dropout1d,
    nn.functional.dropout2d,
    nn.functional.dropout3d,
    nn.functional.alpha_dropout,
    nn.functional.feature_alpha_dropout,
    torch.dropout,
)


class WithoutDropout(TorchFunctionMode):
    """Nothing is dropped: functions that drop keep everything."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function as called, with a chance of zero where it drops."""
        named = dict(kwargs or {})
        if func in _DROPS:
            return args[0] if args else named["input"]
        if func is nn.functional.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            if "dropout_p" in named:
                named["dropout_p"] = 0.0
        return func(*args, **named)


def stop_dropout(model: nn.Module) -> None:
    """Set the chance of dropping to zero in every layer that has one."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0


class Chain(nn.Module):
    """Some layers in a row, called with their weights, their buffers, and what arrives."""

    def __init__(self, layers: nn.Sequential, names: Sequence[str], dropout: bool) -> None:
        super().__init__()
        self._layers = (layers,)  # in a tuple, so that their weights are not the stage's a second time
        self._names = tuple(names)
        self._dropout = dropout

    def forward(self, *values: Tensor) -> tuple[Any, ...]:
        """Result of the last layer."""
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


@dataclass(frozen=True, slots=True, eq=False)
class PreparedModel:
    """The whole model, and for each share its stages; `state` is weights, buffers and constants by name."""

    model: nn.Module
    stages: dict[int, list[StageModule]]
    state: dict[str, Tensor]
    ties: Ties
    inputs: tuple[InputFacts, ...]
    outputs: Outputs
    functions: UserFunctions
    call: Callable[[Sequence[Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]


def prepare(
    target: str, operations: Sequence[str], plan: Plan, seed: int, device: str, *, dropout: bool
) -> PreparedModel:
    """The model that `target` builds from this seed, cut as planned.

    The plan numbers `operations`. `device` is where the stages will run. Refuses a model that cannot be
    exported, unless it is layers in a row.
    """
    torch.manual_seed(seed)
    built = load_builder(target, real=True)
    captured = {
        share: capture_model(built.model, resized(built.inputs, share), built.name)
        for share in dict.fromkeys(plan.shares)
    }
    if all(each.program is None for each in captured.values()) and isinstance(built.model, nn.Sequential):
        prepared = _chain(built, operations, plan, dropout)
    else:
        prepared = _exported(built, captured, operations, plan, device, dropout)
    if not dropout:
        stop_dropout(built.model)
    return prepared


def _exported(
    built: Built,
    captured: Mapping[int, Captured],
    operations: Sequence[str],
    plan: Plan,
    device: str,
    dropout: bool,
) -> PreparedModel:
    per_sample = _per_sample(built.inputs)
    stages = {
        share: stage_modules(
            planned(each, operations), plan, device=device, dropout=dropout, per_sample=per_sample
        )
        for share, each in captured.items()
    }
    program = exported(captured[plan.shares[0]])
    return PreparedModel(
        model=built.model,
        stages=stages,
        state={**program.state_dict, **program.constants},
        ties=_ties(stages[plan.shares[0]]),
        inputs=inputs_of(program, per_sample),
        outputs=outputs_of(program),
        functions=user_functions(built.source),
        call=_caller(built.inputs),
    )


def _chain(built: Built, operations: Sequence[str], plan: Plan, dropout: bool) -> PreparedModel:
    assert isinstance(built.model, nn.Sequential)
    examples = [leaf for leaf in pytree.tree_leaves(built.inputs) if isinstance(leaf, Tensor)]
    stages = {
        share: chain_stages(built.model, operations, plan, resized((examples[0],), share)[0], dropout=dropout)
        for share in dict.fromkeys(plan.shares)
    }
    return PreparedModel(
        model=built.model,
        stages=stages,
        state=chain_state(built.model),
        ties=_ties(stages[plan.shares[0]]),
        inputs=(InputFacts(tuple(examples[0].shape), examples[0].dtype, True, 2),),
        outputs=Outputs.of_one_tensor(),
        functions=user_functions(built.source),
        call=_caller(built.inputs),
    )


def _ties(stages: Sequence[StageModule]) -> Ties:
    return shared_weights([[n for n, trained in stage.facts.weights if trained] for stage in stages])


def planned(captured: Captured, operations: Sequence[str]) -> Captured:
    """A capture whose members are in the order of the operations of a plan; refuses another model's."""
    exported(captured)
    members = dict(zip(captured.graph.names, captured.members, strict=True))
    if members.keys() != set(operations):
        odd = sorted(members.keys() ^ set(operations))[0]
        raise BadInputError(
            f"the plan was made for another model than {captured.graph.name}: only one of them has {odd}"
        )
    return replace(captured, members=tuple(members[name] for name in operations))


def _per_sample(examples: Any) -> list[bool]:
    """Which of the example inputs have a row for every sample: as many as the first one has."""
    tensors = [leaf for leaf in pytree.tree_leaves(examples) if isinstance(leaf, Tensor)]
    return [tensor.shape[:1] == tensors[0].shape[:1] for tensor in tensors]


def _caller(examples: Any) -> Callable[[Sequence[Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]:
    """Turns tensors into the arguments of a call like the example's."""
    leaves, form = pytree.tree_flatten(examples)

    def arguments(tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = iter(tensors)
        given = [next(values) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return arguments_of(pytree.tree_unflatten(given, form))

    return arguments
