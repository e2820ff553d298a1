"""The whole model on one device."""

from collections.abc import Iterator

import numpy as np

from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import Recipe


def single(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """Everything on each device in turn; of devices that are the same, on the first."""
    tried = set()
    for number, device in enumerate(devices.devices):
        same = (device.kind, device.memory, device.memory_bandwidth, tuple(device.peak.items()), device.cores)
        if same not in tried:
            tried.add(same)
            yield np.full(len(graph), number, dtype=np.int64)
