"""Turns a trace of a model into a draft of its graph: of `torch.export`, or of `torch.fx`."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Interpreter, Node

from trimtab.partition.capture.builder import as_meta, moved
from trimtab.partition.capture.draft import Draft, DraftNode, Held, NodeWork
from trimtab.partition.capture.record import (
    RECURRENT,
    OperatorRecorder,
    StandIns,
    bytes_of,
    held_as,
    held_by,
    key_of,
    tensors_in,
)

Overwritten = dict[Node, list[Node]]


def without_in_place(graph: Graph) -> Overwritten:
    """Replace in-place operators of `graph`; returns, for each node, earlier writers into its inputs.

    `relu_(x)` becomes `relu(x)`, and later readers of x read the result. Writes into a view (`x[:, 0] = y`)
    and updates of an input or a buffer of the model stay.
    """
    place = {node: number for number, node in enumerate(graph.nodes)}
    root: dict[Node, Node] = {}
    writers: defaultdict[Node, list[Node]] = defaultdict(list)
    overwritten: Overwritten = {}
    for node in graph.nodes:
        for source in node.all_input_nodes:
            earlier = writers.get(root.get(source, source), ())
            overwritten.setdefault(node, []).extend(writer for writer in earlier if writer is not source)
        if not isinstance(node.target, torch._ops.OpOverload) or not node.all_input_nodes:
            continue
        first = node.args[0] if node.args and isinstance(node.args[0], Node) else None
        schema = node.target._schema
        if first is not None and schema.returns and schema.returns[0].alias_info and not schema.is_mutable:
            root[node] = root.get(first, first)  # a view
        written = schema.arguments[0].alias_info if schema.is_mutable else None
        if first is None or written is None or not written.is_write:
            continue
        pure = _pure(node.target)
        if pure is not None and first not in root and first.op != "placeholder":
            node.target = pure
            for user in [user for user in first.users if place[user] > place[node]]:
                user.replace_input_with(first, node)
        else:
            root[node] = root.get(first, first)
            writers[root[node]].append(node)
    return {node: nodes for node, nodes in overwritten.items() if nodes}


def _pure(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The out-of-place operator with equal arguments, such as `relu` for `relu_`; None if there is none."""
    name = target.overloadpacket.__name__
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None) if name.endswith("_") else None
    if packet is None or target._overloadname not in packet.overloads():
        return None
    pure: torch._ops.OpOverload = getattr(packet, target._overloadname)
    arguments = [[a.name for a in op._schema.arguments] for op in (target, pure)]
    return pure if arguments[0] == arguments[1] else None


class NeedsValuesError(Exception):
    """A step depends on values, which the meta device does not have: another way of capturing is needed."""


@dataclass(frozen=True, slots=True)
class MeasuredNodes:
    """Work of every traced node, bytes it saves for the backward pass, and bytes of its result."""

    works: Mapping[Node, NodeWork]
    saved: Mapping[Node, float]
    sizes: Mapping[Node, float]
    held: Mapping[int, Held]


def measure(module: GraphModule, inputs: tuple[Any, ...], held: Mapping[int, Held]) -> MeasuredNodes:
    """Run `module` on meta `inputs`; `held` are its weights by storage key."""
    recorder = OperatorRecorder(held)
    interpreter = _Interpreter(module, recorder)
    with torch.device("meta"), StandIns(), recorder, torch.enable_grad():
        interpreter.run(*inputs)
    return MeasuredNodes(recorder.works, recorder.saved(), interpreter.sizes, held)


class _Interpreter(Interpreter):
    def __init__(self, module: GraphModule, recorder: OperatorRecorder) -> None:
        super().__init__(module)
        self.recorder = recorder
        self.sizes: dict[Node, float] = {}

    def run_node(self, n: Node) -> Any:
        self.recorder.part = n
        result = super().run_node(n)
        if n.op != "output":
            self.recorder.made(n, result)
            self.sizes[n] = sum(bytes_of(tensor) for tensor in tensors_in(result))
            packet = getattr(n.target, "overloadpacket", None)
            is_layer = n.op == "call_module" and isinstance(self.fetch_attr(str(n.target)), torch.nn.RNNBase)
            if is_layer or (packet is not None and packet.__name__ in RECURRENT):
                # A recurrent layer is one kernel that reads its inputs and writes its outputs.
                held, work = self.recorder.held, self.recorder.works[n]
                moved = self.sizes[n] + sum(
                    self.sizes[source]
                    for source in n.all_input_nodes
                    if not any(key_of(tensor) in held for tensor in tensors_in(self.env.get(source)))
                )
                work.calls, work.traffic, work.by_kind = 1.0, moved, {"rnn": (work.flop, moved)}
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = getattr(target, "_schema", None)
        if "device" in kwargs or (schema and any(a.name == "device" for a in schema.arguments)):
            kwargs = {**kwargs, "device": "meta"}
        if isinstance(target, torch._ops.HigherOrderOperator):  # a block under no_grad or autocast
            body = next((place for place, arg in enumerate(args) if isinstance(arg, torch.nn.Module)), None)
            if body is None or "cond" in str(target) or "while" in str(target):
                raise NeedsValuesError(f"{target} cannot be run without values")
            with torch.set_grad_enabled("grad_enabled" not in str(target) or bool(args[0])):
                return args[body](*args[body + 1 :], **kwargs)
        if getattr(target, "__name__", "").startswith("_assert"):
            return None
        return super().call_function(target, args, kwargs)


_OWN_KINDS = ("conv", "matmul", "attention", "rnn", "embedding")


class NodeGroups:
    """Groups of traced nodes, each known by its leader, in the leaders' order.

    A node without cost (a view, an item of a tuple) joins the last of the nodes it reads, and so runs no
    earlier. A node that reads no input of the model (a mask, positions, a converted weight) joins its only
    reader, or forms a group if several read it. Both keep groups after the groups that they need.
    """

    def __init__(
        self, nodes: list[Node], inputs: set[Node], measured: MeasuredNodes, also: Overwritten
    ) -> None:
        self.place = {node: number for number, node in enumerate(nodes)}
        self._measured = measured
        self._also = also
        self._inputs = inputs
        self._skipped = {n for n in nodes if n.op in ("placeholder", "get_attr") and n not in inputs}
        self.leader: dict[Node, Node] = {}
        self._constants = self._constant_nodes(nodes)
        readers: dict[Node, list[Node]] = {}
        for node in nodes:
            sources = self.reads(node)
            for source in sources:
                readers.setdefault(source, []).append(node)
            if node not in self._skipped and node not in self._constants:
                work = measured.works.get(node)
                leaders = [self.leader[source] for source in sources if source not in self._constants]
                alone = node in inputs or node.op == "output" or not leaders or (work and work.calls)
                self.leader[node] = node if alone else max(leaders, key=self.place.__getitem__)
        for node in reversed(nodes):
            if node in self._constants:
                reading = {self.leader[user] for user in readers.get(node, ()) if user in self.leader}
                if reading:
                    only = next(iter(reading))
                    self.leader[node] = node if len(reading) > 1 or only.op == "output" else only
        self._place_unread(nodes)

    def reads(self, node: Node) -> list[Node]:
        """Nodes that a node reads, without weights, and nodes that must overwrite its inputs before."""
        sources = (*node.all_input_nodes, *self._also.get(node, ()))
        return [source for source in dict.fromkeys(sources) if source not in self._skipped]

    def members(self) -> dict[Node, list[Node]]:
        """The nodes of each group, groups and nodes in running order."""
        leaders = sorted(set(self.leader.values()), key=self.place.__getitem__)
        groups: dict[Node, list[Node]] = {leader: [] for leader in leaders}
        for node in sorted(self.leader, key=self.place.__getitem__):
            groups[self.leader[node]].append(node)
        return groups

    def _constant_nodes(self, nodes: list[Node]) -> set[Node]:
        """Nodes that compute cheap values from nothing, or from other such nodes."""
        constant: set[Node] = set()
        for node in nodes:
            if node in self._skipped or node in self._inputs or node.op == "output":
                continue
            work = self._measured.works.get(node)
            cheap = work is None or (work.flop == 0 and work.kind not in _OWN_KINDS)
            if cheap and all(source in constant for source in self.reads(node)):
                constant.add(node)
        return constant

    def _place_unread(self, nodes: list[Node]) -> None:
        """A constant without readers (a counter of batches) joins its module, else the group before."""
        of_module: dict[str, Node] = {}
        for node in nodes:
            if node in self.leader and node not in self._inputs and node.op != "output":
                of_module.setdefault(block_of(node), self.leader[node])
        before = None
        for node in nodes:
            if node in self.leader:
                before = self.leader[node]
            elif node in self._constants:
                read = [self.leader[source] for source in self.reads(node)]
                latest = max(read, key=self.place.__getitem__, default=None)
                self.leader[node] = latest or of_module.get(block_of(node)) or before or node


def block_of(node: Node) -> str:
    """The path of the innermost module that a traced node runs in; empty for the model itself."""
    stack: Mapping[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    path = [*stack.values()][-1][0] if stack else ""
    return path.split("@")[0]


Members = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """A draft of the graph, and the names of the traced nodes in each of its parts."""

    draft: Draft
    members: Members


def from_program(program: ExportedProgram, batch: int) -> Traced:
    """The graph of an exported program, after replacing its in-place operators."""
    also = without_in_place(program.graph_module.graph)
    program.graph_module.recompile()
    nodes = list(program.graph.nodes)
    places = [node for node in nodes if node.op == "placeholder"]
    values: list[Any] = []
    held: dict[int, Held] = {}
    on_meta: dict[tuple[Any, ...], torch.Tensor] = {}
    inputs: set[Node] = set()
    for node, spec in zip(places, program.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            values.append(moved(node.meta.get("val"), "meta"))
            if isinstance(values[-1], torch.Tensor):
                inputs.add(node)
            continue
        weight: Any = program.state_dict.get(str(spec.target))
        weight = program.constants.get(str(spec.target)) if weight is None else weight
        if isinstance(weight, torch.Tensor):
            same = (key_of(weight), weight.storage_offset(), weight.shape)
            stand_in = on_meta.setdefault(same, as_meta(weight))
            held.setdefault(key_of(stand_in), held_as(weight))
            weight = stand_in
        values.append(weight)
    measured = measure(program.graph_module, tuple(values), held)
    return _traced(nodes, inputs, measured, also, batch)


def from_fx(module: GraphModule, inputs: tuple[Any, ...], batch: int) -> Traced:
    """The graph of a symbolic trace; its module is on the meta device."""
    nodes = list(module.graph.nodes)
    places = [node for node in nodes if node.op == "placeholder"]
    given = {node for node, value in zip(places, inputs, strict=False) if isinstance(value, torch.Tensor)}
    measured = measure(module, tuple(moved(value, "meta") for value in inputs), held_by(module))
    return _traced(nodes, given, measured, {}, batch)


def _traced(
    nodes: list[Node], inputs: set[Node], measured: MeasuredNodes, also: Overwritten, batch: int
) -> Traced:
    groups = NodeGroups(nodes, inputs, measured, also)
    members = groups.members()
    number = {leader: place for place, leader in enumerate(members)}
    draft = Draft(batch, measured.held)
    tensors: dict[Node, int] = {}
    for leader, group in members.items():
        draft.parts.append(_part(leader, group, inputs, measured))
        needed = dict.fromkeys(source for node in group for source in groups.reads(node))
        for source in needed:
            if groups.leader[source] is not leader:
                if source not in tensors:
                    tensors[source] = len(draft.tensors)
                    draft.tensors.append((number[groups.leader[source]], measured.sizes.get(source, 0.0)))
                draft.uses.append((tensors[source], number[leader]))
    return Traced(draft, tuple(tuple(node.name for node in group) for group in members.values()))


def _part(leader: Node, group: list[Node], inputs: set[Node], measured: MeasuredNodes) -> DraftNode:
    work = NodeWork()
    for node in group:
        if node in measured.works:
            work.join(measured.works[node])
    saved = sum(measured.saved.get(node, 0.0) for node in group)
    if leader in inputs:
        return DraftNode(leader.name, "", "input", NodeWork(held=work.held), saved)
    if leader.op == "output":
        return DraftNode("output", "", "output", NodeWork())
    block, name = block_of(leader), str(leader.target)
    if leader.op != "call_module":
        packet = getattr(leader.target, "overloadpacket", leader.target)
        name = f"{block}.{str(getattr(packet, '__name__', packet)).strip('_')}".lstrip(".")
    return DraftNode(name, block, measured.works.get(leader, work).kind, work, saved)
