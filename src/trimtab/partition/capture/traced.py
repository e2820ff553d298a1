"""From a trace of a model to its graph: by `torch.export`, or by `torch.fx` where that fails."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from trimtab.partition.capture.draft import Draft, Part
from trimtab.partition.capture.grouping import Groups, block_of
from trimtab.partition.capture.in_place import Overwritten, without_in_place
from trimtab.partition.capture.interpret import Measured, measure
from trimtab.partition.capture.record import held_as, held_by, key_of
from trimtab.partition.capture.weightless import as_meta, moved
from trimtab.partition.capture.work import Held, Work

Members = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """A draft of the graph, and the names of the traced nodes that each of its parts consists of."""

    draft: Draft
    members: Members


def from_program(program: ExportedProgram, batch: int) -> Traced:
    """The graph of an exported program, whose in-place operators are replaced on the way."""
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
        weight = _stored(program, str(spec.target))
        if isinstance(weight, torch.Tensor):
            same = (key_of(weight), weight.storage_offset(), weight.shape)
            stand_in = on_meta.setdefault(same, as_meta(weight))
            held.setdefault(key_of(stand_in), held_as(weight))
            weight = stand_in
        values.append(weight)
    measured = measure(program.graph_module, tuple(values), held)
    return _traced(nodes, inputs, measured, also, batch)


def from_fx(module: GraphModule, inputs: tuple[Any, ...], batch: int) -> Traced:
    """The graph of a symbolic trace whose module is on the meta device already."""
    nodes = list(module.graph.nodes)
    places = [node for node in nodes if node.op == "placeholder"]
    given = {node for node, value in zip(places, inputs, strict=False) if isinstance(value, torch.Tensor)}
    measured = measure(module, tuple(moved(value, "meta") for value in inputs), held_by(module))
    return _traced(nodes, given, measured, {}, batch)


def _stored(program: ExportedProgram, target: str) -> Any:
    stored = program.state_dict.get(target)
    return program.constants.get(target) if stored is None else stored


def _traced(
    nodes: list[Node], inputs: set[Node], measured: Measured, also: Overwritten, batch: int
) -> Traced:
    groups = Groups(nodes, inputs, measured, also)
    members = groups.members()
    number = {leader: place for place, leader in enumerate(members)}
    draft = Draft(batch, measured.held)
    for leader, group in members.items():
        draft.parts.append(_part(leader, group, inputs, measured))
    tensors: dict[Node, int] = {}
    for leader, group in members.items():
        needed = dict.fromkeys(source for node in group for source in groups.reads(node))
        for source in needed:
            if groups.leader[source] is not leader:
                if source not in tensors:
                    tensors[source] = len(draft.tensors)
                    draft.tensors.append((number[groups.leader[source]], measured.sizes.get(source, 0.0)))
                draft.uses.append((tensors[source], number[leader]))
    return Traced(draft, tuple(tuple(node.name for node in group) for group in members.values()))


def _part(leader: Node, group: list[Node], inputs: set[Node], measured: Measured) -> Part:
    work = Work()
    for node in group:
        if node in measured.works:
            work.join(measured.works[node])
    saved = sum(measured.saved.get(node, 0.0) for node in group)
    if leader in inputs:
        return Part(leader.name, "", "input", Work(held=work.held), saved)
    if leader.op == "output":
        return Part("output", "", "output", Work())
    own = measured.works.get(leader)
    block = block_of(leader)
    name = str(leader.target) if leader.op == "call_module" else f"{block}.{_operation(leader)}".lstrip(".")
    return Part(name, block, own.kind if own is not None else work.kind, work, saved)


def _operation(node: Node) -> str:
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet)).strip("_")
