"""What there is to give: groups of equal nodes, and the shapes in which workers can be put on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Market(StrEnum):
    """How nodes are paid for: by use, always, or by use at a discount until somebody else wants them."""

    ON_DEMAND = "on-demand"
    RESERVED = "reserved"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are alike, in one zone and market. Each has accelerators, CPUs, bytes, dollars per second.

    `nodes` is how many are usable now. `reclaims` is how often per second a spot node is taken away.
    """

    name: str
    accelerator: str
    nodes: int
    gpus: int
    cpus: float
    memory: float
    price: float = 0.0
    market: Market = Market.ON_DEMAND
    reclaims: float = 0.0
    zone: str = ""

    @property
    def gpu_price(self) -> float:
        """Dollars per second of one accelerator; of a node where it has none."""
        return self.price / max(1, self.gpus)


@dataclass(frozen=True, slots=True)
class Shape:
    """So many workers on nodes of one group, on as few of them as hold them."""

    group: int
    workers: int


@dataclass(frozen=True)
class Cluster:
    """Groups, and the shapes a policy may choose from; columns of both for those who decide."""

    groups: tuple[Group, ...]
    shapes: tuple[Shape, ...]

    @cached_property
    def shape_group(self) -> Ints:
        """The group of each shape."""
        return np.array([shape.group for shape in self.shapes], dtype=np.int64)

    @cached_property
    def shape_workers(self) -> Ints:
        """The workers of each shape."""
        return np.array([shape.workers for shape in self.shapes], dtype=np.int64)

    @cached_property
    def capacity(self) -> Floats:
        """Accelerators, CPUs and bytes of each group, as rows."""
        rows = [(g.nodes * g.gpus, g.nodes * g.cpus, g.nodes * g.memory) for g in self.groups]
        return np.array(rows, dtype=float).reshape(-1, 3)

    @cached_property
    def gpu_price(self) -> Floats:
        """Dollars per second of one accelerator of each group; of one node where it has none."""
        return np.array([group.gpu_price for group in self.groups])


def usual_shapes(groups: Sequence[Group], most: int | None = None) -> tuple[Shape, ...]:
    """Powers of two within a node and whole nodes beyond: workers of one accelerator pack without holes."""
    shapes = []
    for index, group in enumerate(groups):
        size = max(1, group.gpus)
        total = min(size * group.nodes, most or size * group.nodes)
        within = [1 << power for power in range(size.bit_length()) if 1 << power <= min(size, total)]
        beyond = range(2 * size, total + 1, size)
        shapes += [Shape(index, workers) for workers in sorted({*within, *beyond, min(size, total)} - {0})]
    return tuple(shapes)
