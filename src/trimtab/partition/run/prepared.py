"""A model made ready to run as planned: built for real, captured at each share's size, cut into stages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from trimtab.core import BadInputError
from trimtab.partition.capture import Built, Captured, arguments_of, capture, load_builder, resized
from trimtab.partition.plan import Plan
from trimtab.partition.run.chains import chain_stages, chain_state
from trimtab.partition.run.dropout import stop_dropout
from trimtab.partition.run.groups import Ties, shared_weights
from trimtab.partition.run.samples import InputFacts, Outputs, inputs_of, outputs_of
from trimtab.partition.run.stage_module import StageModule
from trimtab.partition.run.stages import exported, stage_modules
from trimtab.partition.run.user_file import UserFunctions, user_functions


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
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
) -> Prepared:
    """The model that `target` builds from this seed, cut as planned.

    The plan numbers `operations`. `device` is where the stages will run. Refuses a model that cannot be
    exported, unless it is layers in a row.
    """
    torch.manual_seed(seed)
    built = load_builder(target, real=True)
    captured = {
        share: capture(built.model, resized(built.inputs, share), built.name)
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
) -> Prepared:
    per_sample = _per_sample(built.inputs)
    stages = {
        share: stage_modules(
            planned(each, operations), plan, device=device, dropout=dropout, per_sample=per_sample
        )
        for share, each in captured.items()
    }
    program = exported(captured[plan.shares[0]])
    return Prepared(
        model=built.model,
        stages=stages,
        state={**program.state_dict, **program.constants},
        ties=_ties(stages[plan.shares[0]]),
        inputs=inputs_of(program, per_sample),
        outputs=outputs_of(program),
        functions=user_functions(built.source),
        call=_caller(built.inputs),
    )


def _chain(built: Built, operations: Sequence[str], plan: Plan, dropout: bool) -> Prepared:
    assert isinstance(built.model, nn.Sequential)
    examples = [leaf for leaf in pytree.tree_leaves(built.inputs) if isinstance(leaf, Tensor)]
    stages = {
        share: chain_stages(built.model, operations, plan, resized((examples[0],), share)[0], dropout=dropout)
        for share in dict.fromkeys(plan.shares)
    }
    return Prepared(
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
