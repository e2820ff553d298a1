"""What people call the layers of a model, as far as the names of its modules tell."""

import numpy as np

from trimtab.partition.graph import Graph, Ints


def repeated_block(path: str) -> str:
    """The outermost numbered module of a path (`h.3` of `h.3.attn.proj`); the path itself where none is."""
    words = path.split(".")
    for place, word in enumerate(words):
        if word.isdigit():
            return ".".join(words[: place + 1])
    return path


def layers(graph: Graph) -> Ints:
    """The number of each node's layer, in the order in which layers begin.

    A layer is a repeated block, or a module outside of them; what the model does itself between two modules
    belongs to the layer before. A graph without modules has a layer per node.
    """
    if not any(graph.blocks):
        return np.arange(len(graph))
    numbers: dict[str, int] = {}
    found, now = [], 0
    for path in graph.blocks:
        if path:
            now = numbers.setdefault(repeated_block(path), len(numbers))
        found.append(now)
    return np.array(found, dtype=np.int64)
