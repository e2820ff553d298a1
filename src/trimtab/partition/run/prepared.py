"""Prepares a model to run as planned: built with values, captured for each share, cut into stages."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from trimtab.core import BadInputError
from trimtab.partition.capture.builder import load_builder, resized
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

_DROPOUTS = (
    torch.dropout,
    *(nn.functional.dropout, nn.functional.dropout1d, nn.functional.dropout2d, nn.functional.dropout3d),
    *(nn.functional.alpha_dropout, nn.functional.feature_alpha_dropout),
)


class WithoutDropout(TorchFunctionMode):
    """Calls dropout functions with a probability of zero."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else named["input"]
        if func is nn.functional.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            if "dropout_p" in named:
                named["dropout_p"] = 0.0
        return func(*args, **named)


def stop_dropout(model: nn.Module) -> None:
    """Set the probability of every dropout layer to zero."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0


class Chain(nn.Module):
    """Consecutive layers, called with their weights, their buffers, and their input."""

    def __init__(self, layers: nn.Sequential, names: Sequence[str], dropout: bool) -> None:
        super().__init__()
        self._layers = (layers,)  # in a tuple, so that their weights are not registered a second time
        self._names = tuple(names)
        self._dropout = dropout

    def forward(self, *values: Tensor) -> tuple[Any, ...]:
        held = dict(zip(self._names, values, strict=False))
        with nullcontext() if self._dropout else WithoutDropout():
            return (functional_call(self._layers[0], held, values[len(self._names) :]),)


def chain_stages(
    model: nn.Sequential, operations: Sequence[str], plan: Plan, example: Tensor, *, dropout: bool
) -> list[StageModule]:
    """The layers of a model split as planned; refuses a plan that cuts through one of them."""
    where = _stage_of_each(model, operations, plan)
    layers = copy.deepcopy(model)
    if not dropout:
        stop_dropout(layers)
    first = {id(value): name for name, value in model.named_parameters()}
    first_name = {name: first[id(value)] for name, value in model.named_parameters(remove_duplicate=False)}
    arriving = _facts("input", example, False)
    trained, stages, value = False, [], example
    for number in range(len(plan.stages)):
        own = [name for name, stage in where.items() if stage == number]
        part = nn.Sequential(*(layers.get_submodule(name) for name in own))
        with torch.no_grad():
            value = part(value)
        if not isinstance(value, Tensor):
            raise BadInputError(f"layer {own[-1]} returns no single tensor; --run cannot hand it on")
        weights: dict[str, str] = {}
        buffers: dict[str, str] = {}
        for i, name in enumerate(own):
            layer = layers.get_submodule(name)
            weights |= {f"{i}.{key}": f"{name}.{key}" for key, _ in layer.named_parameters()}
            buffers |= {f"{i}.{key}": f"{name}.{key}" for key, _ in layer.named_buffers()}
        needed = {name: model.get_parameter(name).requires_grad for name in weights.values()}
        trained = trained or any(needed.values())
        leaving = _facts(f"stage_{number}", value, trained)
        facts = StageFacts(
            number=number,
            weights=tuple((first_name[name], flag) for name, flag in needed.items()),
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


def _stage_of_each(model: nn.Sequential, operations: Sequence[str], plan: Plan) -> dict[str, int]:
    """The stage of every layer; a layer without operations in the graph joins the one before."""
    planned = plan.stage_of(len(operations))
    where: dict[str, int] = {}
    before = 0
    for layer, _ in model.named_children():
        stages = {
            stage
            for name, stage in zip(operations, planned, strict=True)
            if name == layer or name.startswith(layer + ".")
        }
        if len(stages) > 1:
            raise BadInputError(
                f"the plan cuts through layer {layer}, but a model that torch.export cannot trace "
                "can only be cut between its layers"
            )
        before = where[layer] = max(before, *stages) if stages else before
    empty = set(range(len(plan.stages))) - set(where.values())
    if empty:
        raise BadInputError(f"stage {min(empty)} has no layer of its own; plan with fewer stages")
    return where


def _facts(name: str, value: Tensor, trained: bool) -> TensorFacts:
    return TensorFacts(name, tuple(value.shape), value.dtype, trained and value.is_floating_point())


@dataclass(frozen=True, slots=True, eq=False)
class PreparedModel:
    """The model, and for each share its stages; `state` is weights, buffers and constants by name."""

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
    """The model that `target` builds from this seed, cut as planned for `device`.

    The plan numbers `operations`. Refuses a model that cannot be exported, unless it is an nn.Sequential.
    """
    torch.manual_seed(seed)
    built = load_builder(target, real=True)
    captured = {
        share: capture_model(built.model, resized(built.inputs, share), built.name)
        for share in dict.fromkeys(plan.shares)
    }
    examples = [leaf for leaf in pytree.tree_leaves(built.inputs) if isinstance(leaf, Tensor)]
    model, example = built.model, examples[0]
    state: dict[str, Tensor]
    if all(trace.program is None for trace in captured.values()) and isinstance(model, nn.Sequential):
        stages = {
            share: chain_stages(model, operations, plan, resized((example,), share)[0], dropout=dropout)
            for share in captured
        }
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        inputs: tuple[InputFacts, ...] = (InputFacts(tuple(example.shape), example.dtype, True, 2),)
        outputs = Outputs.of_one_tensor()
    else:
        # Inputs with a row for every sample: as many rows as the first one.
        per_sample = [tensor.shape[:1] == example.shape[:1] for tensor in examples]
        stages = {
            share: stage_modules(
                planned(trace, operations), plan, device=device, dropout=dropout, per_sample=per_sample
            )
            for share, trace in captured.items()
        }
        program = exported(captured[plan.shares[0]])
        state = {**program.state_dict, **program.constants}
        inputs, outputs = inputs_of(program, per_sample), outputs_of(program)
    if not dropout:
        stop_dropout(model)
    trained = [[n for n, trained in s.facts.weights if trained] for s in stages[plan.shares[0]]]
    return PreparedModel(
        model=model,
        stages=stages,
        state=state,
        ties=shared_weights(trained),
        inputs=inputs,
        outputs=outputs,
        functions=user_functions(built.source),
        call=_caller(built.inputs),
    )


def planned(captured: Captured, operations: Sequence[str]) -> Captured:
    """The capture with members in the order of the plan's operations; refuses another model's plan."""
    exported(captured)
    members = dict(zip(captured.graph.names, captured.members, strict=True))
    if members.keys() != set(operations):
        odd = sorted(members.keys() ^ set(operations))[0]
        raise BadInputError(
            f"the plan was made for another model than {captured.graph.name}: only one of them has {odd}"
        )
    return replace(captured, members=tuple(members[name] for name in operations))


def _caller(examples: Any) -> Callable[[Sequence[Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]:
    """A function from tensors to the arguments of a call with the example's structure."""
    leaves, form = pytree.tree_flatten(examples)

    def arguments(tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = iter(tensors)
        filled = [next(values) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return arguments_of(pytree.tree_unflatten(filled, form))

    return arguments
