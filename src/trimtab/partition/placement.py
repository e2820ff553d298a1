"""Where each node runs when branches may run side by side, and how long one pass then takes."""

from dataclasses import dataclass

from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A device for every node: `latency` in seconds of one pass, `used` bytes of every device in use.

    `loss` is what was made small: latency relative to the fastest device alone, and the share of memory that
    stays idle times its weight.
    """

    graph: Graph
    devices: Devices
    recipe: Recipe
    device_of: tuple[int, ...]
    latency: float
    used: dict[int, float]
    idle: float
    loss: float
    fits: bool
