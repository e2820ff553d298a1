"""A model made ready to run as planned: built for real, captured at each share's size, cut into stages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from trimtab.core import BadInputError
from trimtab.partition.capture import Captured, capture, load_builder, resized
from trimtab.partition.plan import Plan
from trimtab.partition.run.groups import Ties, shared_weights
from trimtab.partition.run.reference import stop_dropout
from trimtab.partition.run.samples import InputFacts, Outputs, inputs_of, outputs_of
from trimtab.partition.run.stage_module import StageModule
from trimtab.partition.run.stages import exported, stage_modules


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The whole model, and for each share its stages; `state` is weights, buffers and constants by name."""

    model: nn.Module
    stages: dict[int, list[StageModule]]
    state: dict[str, Tensor]
    ties: Ties
    inputs: tuple[InputFacts, ...]
    outputs: Outputs
    call: Callable[[Sequence[Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]


def prepare(
    target: str, operations: Sequence[str], plan: Plan, seed: int, device: str, *, dropout: bool
) -> Prepared:
    """The model that `target` builds from this seed, cut as planned; refuses one that does not export.

    The plan numbers `operations`. `device` is where the stages will run.
    """
    torch.manual_seed(seed)
    built = load_builder(target, real=True)
    model, examples = built.model, built.inputs
    per_sample = _per_sample(examples)
    stages: dict[int, list[StageModule]] = {}
    for share in dict.fromkeys(plan.shares):
        captured = planned(capture(model, resized(examples, share), built.name), operations)
        stages[share] = stage_modules(captured, plan, device=device, dropout=dropout, per_sample=per_sample)
    if not dropout:
        stop_dropout(model)
    program = exported(captured)
    weights = [[n for n, trained in s.facts.weights if trained] for s in stages[plan.shares[0]]]
    return Prepared(
        model=model,
        stages=stages,
        state={**program.state_dict, **program.constants},
        ties=shared_weights(weights),
        inputs=inputs_of(program, per_sample),
        outputs=outputs_of(program),
        call=_caller(examples),
    )


def planned(captured: Captured, operations: Sequence[str]) -> Captured:
    """A capture whose members are in the order of the operations of a plan; refuses another model's."""
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
        given = pytree.tree_unflatten(
            [next(values) if isinstance(leaf, Tensor) else leaf for leaf in leaves], form
        )
        if isinstance(given, dict):
            return (), given
        return (tuple(given), {}) if isinstance(given, tuple | list) else ((given,), {})

    return arguments
