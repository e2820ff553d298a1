"""Small changes to a stage's graph, so that a part of a model runs as the whole would."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

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
