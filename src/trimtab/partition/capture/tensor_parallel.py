"""Which nodes several devices can share, and what they then have to add up.

A product with weights that widens what it reads is divided by columns, and so is one whose result goes into
attention: its input's gradient has to be added up. One that narrows it is divided by rows: its result has to
be. What acts on a divided tensor in between is divided too. Convolutions and normalisations are not.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.partition.graph import Floats, Ints

_PASSES_ON = ("elementwise", "view", "copy", "softmax")


@dataclass(frozen=True, slots=True)
class SplitColumns:
    """`Graph.split`, and the bytes added up in the forward and in the backward pass."""

    split: Floats
    forward: Floats
    backward: Floats


def split_columns(
    kinds: Sequence[str], parameters: Floats, producer: Ints, size: Floats, used: Ints, user: Ints
) -> SplitColumns:
    """What tensor parallelism can divide; nodes are in running order."""
    count = len(kinds)
    result = SplitColumns(np.zeros(count), np.zeros(count), np.zeros(count))
    written = np.bincount(producer, weights=size, minlength=count)
    read: list[list[int]] = [[] for _ in range(count)]
    readers: list[list[int]] = [[] for _ in range(count)]
    for tensor, node in zip(used.tolist(), user.tolist(), strict=True):
        read[node].append(tensor)
        readers[int(producer[tensor])].append(node)
    weighted = [kind == "matmul" and parameters[node] > 0 for node, kind in enumerate(kinds)]
    mixes = _goes_into_attention(kinds, weighted, readers)
    widening: defaultdict[int, list[int]] = defaultdict(list)
    divided = [False] * count
    for node, kind in enumerate(kinds):
        sources = [int(producer[tensor]) for tensor in read[node]]
        if kind == "embedding" and parameters[node] > 0:
            result.split[node], result.forward[node] = 1.0, written[node]
        elif weighted[node]:
            result.split[node] = 1.0
            divided[node] = written[node] > size[read[node]].sum() or mixes[node]
            if divided[node]:
                widening[read[node][0] if read[node] else -1].append(node)
            else:
                result.forward[node] = written[node]
        else:
            inside = kind in _PASSES_ON and bool(sources) and all(divided[source] for source in sources)
            divided[node] = inside or kind in ("matmul", "attention")
            result.split[node] = float(divided[node])
    for tensor, nodes in widening.items():
        # Products that read the same tensor (queries, keys, values) share one sum of its gradient.
        result.backward[nodes] = size[tensor] / len(nodes) if tensor >= 0 else 0.0
    return result


def _goes_into_attention(
    kinds: Sequence[str], weighted: Sequence[bool], readers: Sequence[Sequence[int]]
) -> list[bool]:
    """Whether a node's result reaches attention, or a product without weights, before any other product."""
    reaches = [False] * len(kinds)
    for node in reversed(range(len(kinds))):
        for reader in readers[node]:
            mixes = kinds[reader] in ("attention", "matmul") and not weighted[reader]
            reaches[node] |= mixes or (kinds[reader] in _PASSES_ON and reaches[reader])
    return reaches
