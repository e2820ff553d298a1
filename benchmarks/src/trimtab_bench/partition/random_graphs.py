"""Random models: graphs of four families with log-normal work, weights and tensors."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import ceil

import numpy as np

from trimtab.partition import Graph, in_order

Edge = tuple[int, int]
Draw = np.random.Generator

_FLOP, _FLOP_SPREAD = 5e8, 1.0  # medians per sample, and standard deviations of logarithms
_BYTES, _BYTES_SPREAD = 5e5, 1.0
_PARAMETERS, _PARAMETERS_SPREAD = 2e6, 1.2
_SHARE_OF_SKIPS = 0.3
_WIDEST = 4  # nodes of a layer at most
_FARTHEST = 12  # nodes that an edge spans at most, or twice as many where it skips


def random_graph(family: str, nodes: int, seed: int) -> Graph:
    """A model of so many nodes, its one input and its output among them; quantities are per sample."""
    draw = np.random.default_rng((seed, nodes, list(FAMILIES).index(family)))
    edges = _joined(FAMILIES[family](nodes - 2, draw), nodes)
    inner = np.zeros(nodes)
    inner[1:-1] = 1.0

    def drawn(median: float, spread: float) -> np.ndarray:
        return np.asarray(median * np.exp(spread * draw.standard_normal(nodes)) * inner)

    size = _BYTES * np.exp(_BYTES_SPREAD * draw.standard_normal(nodes))
    used = np.array([source for source, _ in edges], dtype=np.int64)
    user = np.array([target for _, target in edges], dtype=np.int64)
    read = np.bincount(user, weights=size[used], minlength=nodes)
    return Graph(
        name=f"{family}-{nodes}-{seed}",
        names=("input", *(f"node_{number}" for number in range(1, nodes - 1)), "output"),
        blocks=("",) * nodes,
        kinds=("input", *("matmul",) * (nodes - 2), "output"),
        calls=inner,
        flop=drawn(_FLOP, _FLOP_SPREAD),
        traffic=(read + size) * inner,
        parameters=np.round(drawn(_PARAMETERS, _PARAMETERS_SPREAD)),
        buffers=np.zeros(nodes),
        saved=read * inner,
        split=inner,
        reduced_forward=size * inner,
        reduced_backward=np.zeros(nodes),
        producer=np.arange(nodes - 1),
        size=size[:-1],
        used=used,
        user=user,
    )


def _joined(edges: Iterable[Edge], nodes: int) -> list[Edge]:
    """Edges among inner nodes, numbered from 0, with the input before all of them and the output after.

    What nobody needs is needed by a node a little later, as models compute nothing in vain.
    """
    inner = {(source + 1, target + 1) for source, target in edges}
    needing, needed = {target for _, target in inner}, {source for source, _ in inner}
    first = {(0, node) for node in range(1, nodes - 1) if node not in needing}
    later = {(node, min(node + _WIDEST, nodes - 2)) for node in range(1, nodes - 2) if node not in needed}
    return sorted(inner | first | later | {(nodes - 2, nodes - 1)})


def _layered(count: int, draw: Draw) -> list[Edge]:
    """Layers of a few nodes, each of which needs one or two of the layer before."""
    layers: list[list[int]] = []
    done = 0
    while done < count:
        width = min(int(draw.integers(1, _WIDEST + 1)), count - done)
        layers.append(list(range(done, done + width)))
        done += width
    return [
        (int(source), node)
        for before, layer in pairwise(layers)
        for node in layer
        for source in draw.choice(before, min(len(before), int(draw.integers(1, 3))), replace=False)
    ]


def _series_parallel(count: int, draw: Draw) -> list[Edge]:
    """Edges that are split in two, or doubled by a node beside them, until there are enough nodes."""
    edges: list[Edge] = [(0, 1)]
    for node in range(2, count):
        place = int(draw.integers(len(edges)))
        source, target = edges[place]
        if draw.random() < 0.5:
            edges[place : place + 1] = [(source, node), (node, target)]
        else:
            edges += [(source, node), (node, target)]
    return _in_order(edges, count)


def _in_order(edges: list[Edge], count: int) -> list[Edge]:
    """The same edges with nodes numbered so that each comes after all it needs."""
    sources, targets = (np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1))
    order = in_order(sources, targets, count, [str(node) for node in range(count)], "a random graph")
    place = np.argsort(order)
    return [(int(place[source]), int(place[target])) for source, target in edges]


def _ordered(count: int, draw: Draw) -> list[Edge]:
    """Each node needs one or two of the few before it."""
    reach = max(4, min(_FARTHEST, ceil(count / 4)))
    return [
        (int(source), node)
        for node in range(1, count)
        for source in draw.choice(
            np.arange(max(0, node - reach), node),
            min(node, reach, int(draw.integers(1, 3))),
            replace=False,
        )
    ]


def _skips(count: int, draw: Draw) -> list[Edge]:
    """A chain, and connections that skip some of it."""
    chain = [(node, node + 1) for node in range(count - 1)]
    jumps = [
        (node, min(count - 1, node + int(draw.integers(2, max(3, min(count // 2, 2 * _FARTHEST))))))
        for node in range(count - 2)
        if draw.random() < _SHARE_OF_SKIPS
    ]
    return chain + jumps


FAMILIES: dict[str, Callable[[int, Draw], list[Edge]]] = {
    "layered": _layered,
    "series-parallel": _series_parallel,
    "ordered": _ordered,
    "skips": _skips,
}
