"""An exported model cut into stages: which of its operations each one runs, and what passes between them."""

import operator
from collections.abc import Callable, Iterable, Sequence
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

_CHANCES = ("p", "dropout_p", "dropout")


def placed(value: Any, device: torch.device) -> Any:
    """The device that tensors are made on, in place of the one the model was looked at on."""
    return device if isinstance(value, torch.device) else value


def without_dropout(node: fx.Node) -> None:
    """Set the chance of dropping to zero where an operation drops."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return
    drops = "dropout" in schema.name
    for place, argument in enumerate(schema.arguments):
        if argument.name not in _CHANCES or (argument.name == "p" and not drops):
            continue
        if argument.name in node.kwargs:
            node.update_kwarg(argument.name, 0.0)
        elif place < len(node.args):
            node.update_arg(place, 0.0)


def keep_received_whole(graph: fx.Graph, taken: Sequence[fx.Node]) -> None:
    """Copy what arrives before an operation writes into it: it may be handed on, and is needed going back."""
    written = {_origin(n.args[0]) for n in graph.nodes if _writes(n) and isinstance(n.args[0], fx.Node)}
    for node in taken:
        if node not in written:
            continue
        with graph.inserting_after(taken[-1]):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        for user in [user for user in node.users if user is not copy]:
            user.replace_input_with(node, copy)


def _writes(node: fx.Node) -> bool:
    """Whether an operation writes into its first argument."""
    arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
    return bool(node.args and arguments and arguments[0].alias_info and arguments[0].alias_info.is_write)


def _origin(node: fx.Node) -> fx.Node:
    """The node whose memory a chain of views and writes shows."""
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
    """The nodes of an exported program by their part: what is held, what comes in, what goes out."""

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
    """The captured program split as planned: one module per stage, with no weights yet (`StageModule.load`).

    `device` is where tensors that the program makes itself are made. `per_sample` says which inputs have a
    row for every sample; the others are the same for all. Where it is not given, the first dimension tells.
    """
    program = exported(captured)
    parts = _parts(program, per_sample)
    where = _stage_of_each(parts, captured.members, plan)
    crossing = _crossing(parts, where, len(plan.stages))
    edit = _unchanged if dropout else without_dropout
    return [
        _stage(parts, where, number, crossing, torch.device(device), edit)
        for number in range(len(plan.stages))
    ]


def exported(captured: Captured) -> ExportedProgram:
    """The exported program; refuses a model that could only be looked at in another way."""
    if captured.program is None:
        raise BadInputError(
            f"{captured.graph.name} cannot be cut into stages that run: {captured.note}; "
            "--run needs a model that torch.export can trace"
        )
    return captured.program


def _unchanged(node: fx.Node) -> None:
    return


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
    return _Program(
        nodes=tuple(n for n in program.graph.nodes if n.op not in ("placeholder", "output")),
        held=held,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        mutated=mutated,
        trained=_trained(program, held),
        constants=_without_samples(inputs, per_sample),
    )


def _trained(program: ExportedProgram, held: dict[fx.Node, tuple[InputKind, str]]) -> frozenset[fx.Node]:
    """The values that a gradient is wanted for: what depends on a weight that is trained."""
    wanted = {
        node
        for node, (kind, name) in held.items()
        if kind == _WEIGHT and program.state_dict[name].requires_grad
    }
    for node in program.graph.nodes:
        if any(need in wanted for need in node.all_input_nodes):
            wanted.add(node)
    return frozenset(wanted)


def _without_samples(inputs: Sequence[fx.Node], per_sample: Sequence[bool] | None) -> frozenset[fx.Node]:
    """Inputs that are the same for all samples."""
    shapes = [tuple(node.meta["val"].shape) for node in inputs]
    flags = per_sample or [shape[:1] == shapes[0][:1] for shape in shapes]
    return frozenset(node for node, one in zip(inputs, flags, strict=True) if not one)


def _stage_of_each(parts: _Program, members: Sequence[Iterable[str]], plan: Plan) -> dict[fx.Node, int]:
    """The stage of every operation; one that no node of the graph names goes where its neighbours are."""
    planned = plan.stage_of(len(members))
    by_name = {name: planned[i] for i, names in enumerate(members) for name in names}
    where: dict[fx.Node, int] = {}
    for node in parts.inputs:
        where[node] = by_name.get(node.name, 0)
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
    """The values that pass each boundary, in the graph's order: number s comes before stage s."""
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
                    f"{node.name} is no tensor and cannot be handed from stage {stage - 1} to {stage}"
                )
            passing[stage].append(node)
    return passing


def _stage(
    parts: _Program,
    where: dict[fx.Node, int],
    number: int,
    crossing: list[list[fx.Node]],
    device: torch.device,
    edit: Callable[[fx.Node], None],
) -> StageModule:
    """One stage's own graph: everything it holds, loads and receives is an argument."""
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
        copies[node] = _copy(graph, node, copies, device, root)
        edit(copies[node])
    changed = [node for node in parts.mutated if where.get(node) == number]
    graph.output(tuple(copies[node] for node in (*going, *changed)))
    keep_received_whole(graph, taken)
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


def _copy(
    graph: fx.Graph,
    node: fx.Node,
    copies: dict[fx.Node, fx.Node],
    device: torch.device,
    root: dict[str, Any],
) -> fx.Node:
    """A node of the program in the stage's graph, its own tensors made on `device`."""
    copy = graph.node_copy(node, lambda need: copies[need])
    copy.args = map_aggregate(copy.args, lambda value: placed(value, device))
    copy.kwargs = map_aggregate(copy.kwargs, lambda value: placed(value, device))
    copy.meta = {}
    if node.op == "get_attr":
        root[str(node.target)] = operator.attrgetter(str(node.target))(node.graph.owning_module)
    return copy


def _facts(node: fx.Node, parts: _Program) -> TensorFacts:
    value = node.meta["val"]
    floating = value.is_floating_point() or value.is_complex()
    return TensorFacts(node.name, tuple(value.shape), value.dtype, floating and node in parts.trained)
