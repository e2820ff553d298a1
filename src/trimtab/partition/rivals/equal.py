"""The naive split: the same number of layers for each device, in order."""

from collections.abc import Iterator

import numpy as np

from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import Recipe
from trimtab.partition.rivals.layers import layers


def equal(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """As many layers for everyone; and as many nodes, where a layer is not what the names suggest."""
    for number in (layers(graph), np.arange(len(graph))):
        yield number * len(devices) // (int(number.max()) + 1)
