"""Orders in which a graph's nodes can run: those that keep few bytes waiting make good cuts."""

import numpy as np

from trimtab.partition.graph import Graph, Ints


def narrow_order(graph: Graph) -> Ints:
    """Always the node that leaves the fewest bytes waiting for a later one; ties as they came."""
    left = np.bincount(graph.used, minlength=len(graph.producer))
    uses: list[list[int]] = [[] for _ in range(len(graph))]
    for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
        uses[node].append(tensor)
    made = np.zeros(len(graph))
    np.add.at(made, graph.producer, graph.size)

    def growth(node: int) -> float:
        return float(made[node]) - sum(float(graph.size[t]) for t in uses[node] if left[t] == 1)

    waiting, following = _needs(graph)
    ready = [node for node in range(len(graph)) if waiting[node] == 0]
    order: list[int] = []
    while ready:
        node = min(ready, key=lambda each: (growth(each), each))
        ready.remove(node)
        order.append(node)
        for tensor in uses[node]:
            left[tensor] -= 1
        for target in following[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return np.array(order, dtype=np.int64)


def _needs(graph: Graph) -> tuple[Ints, list[list[int]]]:
    """How many tensors each node waits for, and who waits for each."""
    sources, targets, _ = graph.edges
    following: list[list[int]] = [[] for _ in range(len(graph))]
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        following[source].append(target)
    return np.bincount(targets, minlength=len(graph)), following
