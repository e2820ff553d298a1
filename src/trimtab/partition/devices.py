"""What a model is split over: devices that may all be unequal, and the links between them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `kind` is an accelerator of the catalog, or "cpu" with `cores`; `memory` in bytes.

    `peak` is FLOP/s by number format and `memory_bandwidth` B/s, as the catalog has them or as told;
    `machine` numbers the machine it sits in; `price` is dollars per second, None where nobody knows.
    """

    name: str
    kind: str
    memory: float
    peak: Mapping[str, float]
    memory_bandwidth: float
    machine: int = 0
    price: float | None = None
    cores: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """Devices and their links: `bandwidth[i, j]` B/s from i to j, zero where none is; `latency[i, j]` s."""

    devices: tuple[Device, ...]
    bandwidth: NDArray[np.float64]
    latency: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not self.devices:
            raise BadInputError("there are no devices to split the model over; --devices a100:2 names two")

    def __len__(self) -> int:
        return len(self.devices)

    def __getitem__(self, index: int) -> Device:
        return self.devices[index]

    @property
    def memory(self) -> NDArray[np.float64]:
        """Bytes of each device."""
        return np.array([device.memory for device in self.devices])

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds there are, in the order of their first device."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    def only(self, chosen: "tuple[int, ...]") -> "Devices":
        """Some of the devices, in the given order."""
        index = np.array(chosen, dtype=np.int64)
        return Devices(
            tuple(self.devices[i] for i in chosen),
            self.bandwidth[np.ix_(index, index)],
            self.latency[np.ix_(index, index)],
        )
