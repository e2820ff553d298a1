"""Cuts an exported model into stages: the operations of each, and the tensors that pass between them."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import map_aggregate

from trimtab.core import BadInputError
from trimtab.partition.capture.capturing import Captured
from trimtab.partition.plan import Plan
from trimtab.partition.run.stage_module import StageFacts, StageModule, TensorFacts

_PROBABILITIES = ("p", "dropout_p", "dropout")


def without_dropout(node: fx.Node) -> None:
    """Set the probability of a dropout operation to zero."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return
    drops = "dropout" in schema.name
    for place, argument in enumerate(schema.arguments):
        if argument.name not in _PROBABILITIES or (argument.name == "p" and not drops):
            continue
        if argument.name in node.kwargs:
            node.update_kwarg(argument.name, 0.0)
        elif place < len(node.args):
            node.update_arg(place, 0.0)


def copy_written_inputs(graph: fx.Graph, taken: Sequence[fx.Node]) -> None:
    """Copy inputs that an operation writes into: they may be sent on, and the backward pass needs them."""
    written = set()
    for node in graph.nodes:
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        writes = arguments and arguments[0].alias_info and arguments[0].alias_info.is_write
        if writes and node.args and isinstance(node.args[0], fx.Node):
            written.add(_origin(node.args[0]))
    for node in taken:
        if node not in written:
            continue
        with graph.inserting_after(taken[-1]):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        for user in [user for user in node.users if user is not copy]:
            user.replace_input_with(node, copy)


def _origin(node: fx.Node) -> fx.Node:
    """The node whose memory a chain of views and writes shares."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        returns = getattr(getattr(node.target, "_schema", None), "returns", ())
        if not returns or returns[0].alias_info is None:
            break
        node = node.args[0]
    return node


_WEIGHT = InputKind.PARAMETER
_BUFFERS = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True, slots=True)
class _Program:
    """The nodes of an exported program by role: operations, state, inputs, outputs."""

    nodes: tuple[fx.Node, ...]
    held: dict[fx.Node, tuple[InputKind, str]]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[Any, ...]
    mutated: dict[fx.Node, str]
    trained: frozenset[fx.Node]
    constants: frozenset[fx.Node]


def stage_modules(
    captured: Captured,
    plan: Plan,
    *,
    device: torch.device | str = "cpu",
    dropout: bool = True,
    per_sample: Sequence[bool] | None = None,
) -> list[StageModule]:
    """The captured program split as planned: one module per stage, before `StageModule.load`.

    The program creates its own tensors on `device`. `per_sample` says which inputs have a row for every
    sample; by default, those with the first dimension of the first input.
    """
    program = exported(captured)
    parts = _parts(program, per_sample)
    where = _stage_of_each(parts, captured.members, plan)
    crossing = _crossing(parts, where, len(plan.stages))
    return [
        _stage(parts, where, number, crossing, torch.device(device), dropout)
        for number in range(len(plan.stages))
    ]


def exported(captured: Captured) -> ExportedProgram:
    """The exported program; refuses a model that was captured in another way."""
    if captured.program is None:
        raise BadInputError(
            f"{captured.graph.name} cannot be cut into stages that run: {captured.note}; "
            "--run needs a model that torch.export can trace"
        )
    return captured.program


def _parts(program: ExportedProgram, per_sample: Sequence[bool] | None) -> _Program:
    by_name = {node.name: node for node in program.graph.nodes}
    held: dict[fx.Node, tuple[InputKind, str]] = {}
    inputs: list[fx.Node] = []
    for spec in program.graph_signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if spec.kind == InputKind.USER_INPUT:
            if name in by_name and isinstance(by_name[name].meta.get("val"), torch.Tensor):
                inputs.append(by_name[name])
        elif spec.kind in (_WEIGHT, *_BUFFERS):
            held[by_name[name]] = (spec.kind, str(spec.target))
        else:
            raise BadInputError(f"the model takes {name}, a {spec.kind.name}; --run can only hand on tensors")
    output = next(node for node in program.graph.nodes if node.op == "output")
    outputs: list[Any] = []
    mutated: dict[fx.Node, str] = {}
    for spec, value in zip(program.graph_signature.output_specs, output.args[0], strict=True):
        if spec.kind == OutputKind.USER_OUTPUT:
            outputs.append(value)
        elif spec.kind == OutputKind.BUFFER_MUTATION:
            mutated[value] = str(spec.target)
    shapes = [tuple(node.meta["val"].shape) for node in inputs]
    flags = per_sample or [shape[:1] == shapes[0][:1] for shape in shapes]
    return _Program(
        nodes=tuple(n for n in program.graph.nodes if n.op not in ("placeholder", "output")),
        held=held,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        mutated=mutated,
        trained=_trained(program, held),
        constants=frozenset(node for node, flag in zip(inputs, flags, strict=True) if not flag),
    )


def _trained(program: ExportedProgram, held: dict[fx.Node, tuple[InputKind, str]]) -> frozenset[fx.Node]:
    """Values that need a gradient: those that depend on a trained weight."""
    trained = {
        node
        for node, (kind, name) in held.items()
        if kind == _WEIGHT and program.state_dict[name].requires_grad
    }
    for node in program.graph.nodes:
        if any(need in trained for need in node.all_input_nodes):
            trained.add(node)
    return frozenset(trained)


def _stage_of_each(parts: _Program, members: Sequence[Iterable[str]], plan: Plan) -> dict[fx.Node, int]:
    """The stage of every operation; one without a node in the graph joins its neighbours' stage."""
    planned = plan.stage_of(len(members))
    by_name = {name: planned[i] for i, names in enumerate(members) for name in names}
    where: dict[fx.Node, int] = {node: by_name.get(node.name, 0) for node in parts.inputs}
    following = len(plan.stages) - 1
    guesses: dict[fx.Node, int] = {}
    for node in reversed(parts.nodes):
        following = by_name.get(node.name, following)
        guesses[node] = following
    for node in parts.nodes:
        needs = [where[need] for need in node.all_input_nodes if need in where]
        if node.target is operator.getitem and needs:
            where[node] = needs[0]
        elif node.name in by_name:
            where[node] = by_name[node.name]
            if needs and max(needs) > where[node]:
                raise BadInputError(f"the plan runs {node.name} in stage {where[node]}, before what it needs")
        else:
            where[node] = max([guesses[node], *needs])
    return where


def _crossing(parts: _Program, where: dict[fx.Node, int], stages: int) -> list[list[fx.Node]]:
    """The values that pass each boundary, in the graph's order; boundary s is before stage s."""
    last: dict[fx.Node, int] = {}
    for node in parts.nodes:
        for need in node.all_input_nodes:
            if need in where and need not in parts.constants:
                last[need] = max(last.get(need, 0), where[node])
    for value in parts.outputs:
        if isinstance(value, fx.Node) and value in where:
            last[value] = stages - 1
    ordered = [node for node in (*parts.inputs, *parts.nodes) if node in last]
    passing: list[list[fx.Node]] = [[] for _ in range(stages)]
    for node in ordered:
        for stage in range(where[node] + 1, last[node] + 1):
            if not isinstance(node.meta.get("val"), torch.Tensor):
                raise BadInputError(
                    f"{node.name} is not a tensor and cannot be handed from stage {stage - 1} to {stage}"
                )
            passing[stage].append(node)
    return passing


def _stage(
    parts: _Program,
    where: dict[fx.Node, int],
    number: int,
    crossing: list[list[fx.Node]],
    device: torch.device,
    dropout: bool,
) -> StageModule:
    """The graph of one stage; its weights, buffers, inputs and received tensors are arguments."""
    own = [node for node in parts.nodes if where[node] == number]
    last = number == len(crossing) - 1
    going = [value for value in parts.outputs if isinstance(value, fx.Node)] if last else crossing[number + 1]
    used = {need for node in own for need in node.all_input_nodes} | set(going)
    held = [node for node in parts.held if node in used]
    weights = [node for node in held if parts.held[node][0] == _WEIGHT]
    buffers = [node for node in held if parts.held[node][0] in _BUFFERS]
    constants = [node for node in parts.inputs if node in parts.constants and node in used]
    loaded = [
        node
        for node in parts.inputs
        if where[node] == number and node not in parts.constants and (node in used or number == 0)
    ]
    received = crossing[number]
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {
        node: graph.placeholder(node.name) for node in (*weights, *buffers, *constants, *loaded, *received)
    }
    taken = [copies[node] for node in (*loaded, *received)]
    root: dict[str, Any] = {}
    for node in own:
        copy = copies[node] = graph.node_copy(node, lambda need: copies[need])
        copy.args = map_aggregate(copy.args, lambda v: device if isinstance(v, torch.device) else v)
        copy.kwargs = map_aggregate(copy.kwargs, lambda v: device if isinstance(v, torch.device) else v)
        copy.meta = {}
        if node.op == "get_attr":
            root[str(node.target)] = operator.attrgetter(str(node.target))(node.graph.owning_module)
        if not dropout:
            without_dropout(copy)
    changed = [node for node in parts.mutated if where.get(node) == number]
    graph.output(tuple(copies[node] for node in (*going, *changed)))
    copy_written_inputs(graph, taken)
    numbers = {node: i for i, node in enumerate(parts.inputs)}
    facts = StageFacts(
        number=number,
        weights=tuple((parts.held[node][1], node in parts.trained) for node in weights),
        buffers=tuple(parts.held[node][1] for node in buffers),
        constants=tuple(numbers[node] for node in constants),
        loaded=tuple(numbers[node] for node in loaded),
        received=tuple(_facts(node, parts) for node in received),
        handed_on=tuple(_facts(node, parts) for node in going),
        mutated=tuple(parts.mutated[node] for node in changed),
    )
    return StageModule(fx.GraphModule(root, graph), facts)


def _facts(node: fx.Node, parts: _Program) -> TensorFacts:
    value = node.meta["val"]
    floating = value.is_floating_point() or value.is_complex()
    return TensorFacts(node.name, tuple(value.shape), value.dtype, floating and node in parts.trained)
