"""Where each node runs when branches may run side by side, and how long one pass then takes."""

from dataclasses import dataclass

from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A device for every node: `latency` in seconds of one pass, `used` bytes of every device in use.

    `busy` are seconds in which each of those computes; `alone` is the latency of all nodes on `fastest`, the
    fastest device, whether they fit there or not. `loss` is what was made small, see `loss_of`.
    """

    graph: Graph
    devices: Devices
    recipe: Recipe
    device_of: tuple[int, ...]
    latency: float
    used: dict[int, float]
    busy: dict[int, float]
    idle: float
    idle_weight: float
    fastest: int
    alone: float
    alone_fits: bool
    loss: float
    fits: bool

    def loss_of(self, latency: float, idle: float) -> float:
        """The loss that another way to run the same pass has, with so many bytes idle."""
        return loss(latency, self.alone, idle, self.devices, self.idle_weight)


def loss(latency: float, alone: float, idle: float, devices: Devices, idle_weight: float) -> float:
    """Equation (1) of the seed: latency relative to the fastest device alone, and idle memory as a share."""
    return latency / alone + idle_weight * idle / float(devices.memory.sum())
