"""A very large graph with fewer nodes: neighbours in its order that belong together become one."""

from dataclasses import dataclass

import numpy as np

from trimtab.partition.graph import Floats, Graph, Ints, Tie


@dataclass(frozen=True, slots=True, eq=False)
class Coarse:
    """The smaller graph, and where each of its nodes begins in the order of the `fine` one."""

    fine: Graph
    graph: Graph
    starts: Ints

    def spread(self, column: Ints) -> Ints:
        """A value per coarse node as one per fine node."""
        return np.repeat(column, np.diff(np.append(self.starts, len(self.fine))))

    def summed(self, column: Floats) -> Floats:
        """A value per fine node, added up per coarse node."""
        return np.asarray(np.add.reduceat(column, self.starts))


def coarsened(graph: Graph, most: int) -> Coarse:
    """At most about so many nodes: cut into spans of equal work where the fewest bytes cross."""
    work = graph.flop / max(graph.flop.sum(), 1e-30) + graph.traffic / max(graph.traffic.sum(), 1e-30)
    starts = quiet_places(graph, work + 1.0 / len(graph), most)[:-1]
    lengths = np.diff(np.append(starts, len(graph)))
    group = np.repeat(np.arange(len(starts)), lengths)
    heaviest = [
        int(start + np.argmax((graph.flop + graph.traffic)[start : start + length]))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]

    def summed(column: Floats) -> Floats:
        return np.asarray(np.add.reduceat(column, starts))

    ties, twice = _ties(graph, group)
    parameters = summed(graph.parameters)
    np.subtract.at(parameters, [where for where, _ in twice], [count for _, count in twice])
    weight = graph.parameters + graph.flop * 1e-3 + 1e-9
    leaves = np.zeros(len(graph.producer), dtype=bool)
    np.logical_or.at(leaves, graph.used, group[graph.user] != group[graph.producer[graph.used]])
    number = np.cumsum(leaves) - 1
    uses = np.unique(
        np.stack([number[graph.used], group[graph.user]])[
            :, leaves[graph.used] & (group[graph.user] != group[graph.producer[graph.used]])
        ],
        axis=1,
    )
    coarse = Graph(
        name=graph.name,
        names=tuple(graph.names[index] for index in heaviest),
        blocks=tuple(graph.blocks[index] for index in heaviest),
        kinds=tuple(graph.kinds[index] for index in heaviest),
        calls=summed(graph.calls),
        flop=summed(graph.flop),
        traffic=summed(graph.traffic),
        parameters=parameters,
        buffers=summed(graph.buffers),
        saved=summed(graph.saved),
        split=summed(graph.split * weight) / summed(weight),
        reduced_forward=summed(graph.reduced_forward),
        reduced_backward=summed(graph.reduced_backward),
        producer=group[graph.producer[leaves]],
        size=graph.size[leaves],
        used=uses[0],
        user=uses[1],
        ties=ties,
        element=graph.element,
    )
    return Coarse(graph, coarse, starts)


def quiet_places(graph: Graph, weight: Floats, count: int) -> Ints:
    """Ends of about so many spans of equal weight, each where the fewest bytes cross nearby; 0 is one too."""
    done = np.concatenate([[0.0], np.cumsum(weight)])
    crossing = graph.cut_bytes()
    marks = np.searchsorted(done, np.linspace(0.0, done[-1], count + 1))
    found = {0, len(graph)}
    for low, high in zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True):
        if high > low:
            found.add(low + 1 + int(np.argmin(crossing[low + 1 : high + 1])))
    return np.array(sorted(found), dtype=np.int64)


def _ties(graph: Graph, group: Ints) -> tuple[tuple[Tie, ...], list[tuple[int, float]]]:
    """Ties between coarse nodes, and weights that one coarse node would hold twice."""
    ties, twice = [], []
    for tie in graph.ties:
        where, counts = np.unique(group[list(tie.nodes)], return_counts=True)
        twice += [(int(w), (int(c) - 1) * tie.parameters) for w, c in zip(where, counts, strict=True)]
        if len(where) > 1:
            ties.append(Tie(tuple(where.tolist()), tie.parameters))
    return tuple(ties), twice
