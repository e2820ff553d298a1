"""Seconds of every node on a kind of device, for so many samples at once."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.partition.coarse import Coarse
from trimtab.partition.cost.assumptions import Assumptions
from trimtab.partition.devices import Device
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Recipe
from trimtab.predict import Hardware, Operations, OperationTimes, operation_times


@dataclass(slots=True)
class NodeTimes:
    """Times by kind of device, samples and devices that share a product; each is worked out once.

    With `coarse`, the times of its fine nodes are added up.
    """

    graph: Graph
    recipe: Recipe
    assume: Assumptions = field(default_factory=Assumptions)
    coarse: Coarse | None = None
    _known: dict[tuple[object, ...], OperationTimes] = field(default_factory=dict)

    def on(self, device: Device, samples: int, tensor: int = 1) -> OperationTimes:
        """Times of all nodes on one of `tensor` devices like this one."""
        key = (device.kind, device.memory_bandwidth, device.cores, *device.peak.items(), samples, tensor)
        if key not in self._known:
            self._known[key] = self._work_out(device, samples, tensor)
        return self._known[key]

    def _work_out(self, device: Device, samples: int, tensor: int) -> OperationTimes:
        graph = self.graph
        share = 1.0 - graph.split + graph.split / tensor
        asked = Operations(
            kinds=np.array(graph.kinds),
            calls=graph.calls,
            flop=graph.flop * samples * share,
            traffic=graph.traffic * samples * share * (4.0 / graph.element),
            weight_bytes=graph.parameters * share * 4.0,
        )
        hardware = Hardware(device.kind, device.peak, device.memory_bandwidth, device.cores)
        times = operation_times(asked, hardware, self.recipe.precision, self.recipe.training)
        ahead, back = self.assume.corrected(device.kind)
        forward, backward = times.forward * ahead, times.backward * back
        if self.coarse is not None:
            forward, backward = self.coarse.summed(forward), self.coarse.summed(backward)
        return OperationTimes(forward, backward, times.once, times.update, times.low, times.high)
