"""A graph partitioner that knows of weights and of what is cut, but of no direction: METIS."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from trimtab.core import MissingDependencyError
from trimtab.partition.cost.node_times import NodeTimes
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.layout import Layout
from trimtab.partition.plan import Recipe
from trimtab.partition.problem import bytes_per_weight

_MICROBATCHES = 8  # of a step, where time per node is asked for
_UNITS = 1_000_000  # of the sum of all weights: METIS counts in whole numbers
_UNEVEN = 30  # thousandths by which a part may be too large


def metis(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """Parts by speed, by memory and by both; each as METIS cuts, and repaired so that nothing flows back.

    Nodes weigh the time they take or what they hold (with one sample, and with all that training keeps of a
    micro-batch), edges the bytes they carry. The part of device d is as large as its share of all speed or
    memory.
    """
    if len(devices) == 1:
        yield np.zeros(len(graph), dtype=np.int64)
        return
    by_time, speed = _times(graph, devices, recipe)
    room = _share(devices.memory)
    weighings = [(by_time, speed)]
    for by_memory in _memories(graph, recipe):
        weighings += [(by_memory, room), ((by_time + by_memory) / 2, (speed + room) / 2)]
    for node_share, device_share in weighings:
        part = _parts(graph, node_share, device_share)
        yield part
        yield _flowing_on(graph, part)


def _memories(graph: Graph, recipe: Recipe) -> Iterator[Floats]:
    """Each node's share of what the model holds: with one sample, and in a step of training."""
    yield _share(4.0 * graph.parameters + graph.buffers + graph.saved)
    samples = max(1, recipe.batch // _MICROBATCHES)
    weights = graph.parameters * sum(bytes_per_weight(recipe, Layout()))
    yield _share(weights + graph.buffers + graph.saved * samples)


def _times(graph: Graph, devices: Devices, recipe: Recipe) -> tuple[Floats, Floats]:
    """Each node's share of the time of a micro-batch, and each device's share of all speed."""
    times = NodeTimes(graph, recipe)
    samples = max(1, recipe.batch // _MICROBATCHES)
    took = [times.on(device, samples) for device in devices.devices]
    seconds = np.array([each.forward + each.backward for each in took])
    return _share(seconds.mean(axis=0)), _share(1.0 / seconds.sum(axis=1))


def _share(amounts: Floats) -> Floats:
    return amounts / max(float(amounts.sum()), 1e-30)


def _parts(graph: Graph, node_share: Floats, device_share: Floats) -> Ints:
    try:
        import pymetis
    except ImportError as error:
        raise MissingDependencyError("a cut by METIS needs pymetis: pip install 'trimtab[rivals]'") from error
    starts, neighbours, bytes_between = _neighbours(graph)
    with _silenced():
        found = pymetis.part_graph(
            len(device_share),
            pymetis.CSRAdjacency(adj_starts=starts.tolist(), adjacent=neighbours.tolist()),
            vweights=(np.round(node_share * _UNITS).astype(np.int64)).tolist(),
            eweights=bytes_between.tolist(),
            tpwgts=(device_share / device_share.sum()).tolist(),
            options=pymetis.Options(seed=0, ufactor=_UNEVEN),
        )
    return np.array(found.vertex_part, dtype=np.int64)


def _neighbours(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """Who is beside whom, both ways, as METIS wants it, with bytes as whole numbers of at least one."""
    sources, targets, size = graph.edges
    pairs, where = np.unique(np.stack((sources, targets)), axis=1, return_inverse=True)
    carried = np.bincount(where.ravel(), weights=size, minlength=pairs.shape[1])
    carried = np.maximum(1, np.round(carried / max(float(carried.sum()), 1.0) * _UNITS)).astype(np.int64)
    one, other = np.concatenate((pairs, pairs[::-1]), axis=1)
    order = np.argsort(one, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(one, minlength=len(graph)))))
    return starts, other[order], np.tile(carried, 2)[order]


def _flowing_on(graph: Graph, part: Ints) -> Ints:
    """Parts in the order of their mean place in the graph, every node in that of what it needs, or later."""
    place = np.arange(len(graph))
    order = np.array(sorted(set(part.tolist()), key=lambda each: float(place[part == each].mean())))
    rank = np.empty(int(part.max()) + 1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    turn = rank[part]
    sources, targets, _ = graph.edges
    for use in np.argsort(targets, kind="stable"):
        turn[targets[use]] = max(turn[targets[use]], turn[sources[use]])
    return order[turn]


@contextmanager
def _silenced() -> Iterator[None]:
    """METIS, written in C, complains on standard output of parts that stay empty."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
