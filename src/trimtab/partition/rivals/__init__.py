"""Other ways to split a model, tried like ours: a rival proposes devices for nodes, the best plan counts.

A rival is a function from a graph, devices and a recipe to one or more proposals, each a device per node;
adding one is a file and a line in `RIVALS`.
"""

from collections.abc import Callable, Iterable

from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import Recipe
from trimtab.partition.rivals.accelerate_map import accelerate_balanced, accelerate_sequential
from trimtab.partition.rivals.contest import Reached, reached_by
from trimtab.partition.rivals.equal import equal
from trimtab.partition.rivals.metis_cut import metis
from trimtab.partition.rivals.random_cuts import random_cuts
from trimtab.partition.rivals.single import single

__all__ = ["RIVALS", "Reached", "Rival", "reached_by"]

Rival = Callable[[Graph, Devices, Recipe], Iterable[Ints]]

RIVALS: dict[str, Rival] = {
    "equal": equal,
    "accelerate-balanced": accelerate_balanced,
    "accelerate-sequential": accelerate_sequential,
    "metis": metis,
    "random": random_cuts,
    "single": single,
}
