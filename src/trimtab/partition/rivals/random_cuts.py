"""Chance: devices in a random order, and cuts between layers at random places."""

from collections.abc import Iterator

import numpy as np

from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import Recipe
from trimtab.partition.rivals.layers import layers

SEEDS = 5


def random_cuts(graph: Graph, devices: Devices, recipe: Recipe) -> Iterator[Ints]:
    """One split per seed, over all devices or, with few layers, as many as there are layers."""
    number = layers(graph)
    count = int(number.max()) + 1
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        stages = min(len(devices), count)
        cuts = np.sort(draw.choice(np.arange(1, count), stages - 1, replace=False))
        yield draw.permutation(len(devices))[np.searchsorted(cuts, number, side="right")]
