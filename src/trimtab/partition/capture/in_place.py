"""Operators that overwrite what they read, made to hand on something new where that is the same."""

from collections import defaultdict

import torch
from torch.fx import Graph, Node

Overwritten = dict[Node, list[Node]]


def without_in_place(graph: Graph) -> Overwritten:
    """Rewrite `graph`; returns, for each node, those that overwrite parts of what it reads before it does.

    `relu_(x)` becomes `relu(x)`, and whoever read x after it reads the result. What writes into a view of
    something (`x[:, 0] = y`) stays, and so does what updates an input or a buffer of the model.
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
        if first is not None and _is_view(node.target):
            root[node] = root.get(first, first)
        if first is None or not node.target._schema.is_mutable or not _writes_first(node.target):
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


def _is_view(target: torch._ops.OpOverload) -> bool:
    returned = target._schema.returns
    return bool(returned) and returned[0].alias_info is not None and not target._schema.is_mutable


def _writes_first(target: torch._ops.OpOverload) -> bool:
    written = target._schema.arguments[0].alias_info
    return written is not None and written.is_write


def _pure(target: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The operator without its final underscore that takes the same arguments."""
    name = target.overloadpacket.__name__
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None) if name.endswith("_") else None
    if packet is None or target._overloadname not in packet.overloads():
        return None
    pure: torch._ops.OpOverload = getattr(packet, target._overloadname)
    arguments = [[a.name for a in op._schema.arguments] for op in (target, pure)]
    return pure if arguments[0] == arguments[1] else None
