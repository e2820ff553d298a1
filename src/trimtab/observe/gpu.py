"""GPUs as NVIDIA's management library shows them; nothing where it is not installed or finds no driver."""

import contextlib
import importlib
from typing import Any


class Gpus:
    """All NVIDIA devices of this machine. Use `close` when done."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[Any] = []
        with contextlib.suppress(Exception):
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._nvml = nvml
            self._devices = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]

    def __len__(self) -> int:
        return len(self._devices)

    def names(self) -> tuple[str, ...]:
        """Each device's product name."""
        names = (self._nvml.nvmlDeviceGetName(device) for device in self._devices)
        return tuple(name.decode() if isinstance(name, bytes) else name for name in names)

    def usage(self) -> tuple[float, float] | None:
        """Busy share summed over devices and bytes of device memory in use, by anyone; None without a GPU."""
        busy = memory = 0.0
        try:
            for device in self._devices:
                busy += self._nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
                memory += float(self._nvml.nvmlDeviceGetMemoryInfo(device).used)
        except Exception:  # a device that fell off the bus must not end the profile
            return None
        return (busy, memory) if self._devices else None

    def close(self) -> None:
        """Let the library go."""
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()
