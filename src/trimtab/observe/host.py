"""The machine a run is made on, as the run sees it: CPUs and memory it may use, its GPUs, its speed now."""

import contextlib
import importlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.core import Host
from trimtab.kernel import cpu_limit, memory_limit

_LOOPS = 150_000
_EVERY = 0.2  # s


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


def describe_host(gpus: Gpus) -> Host:
    """CPU model, cores and memory this process may use, GPU names."""
    return Host(cpu=_cpu_model(), cores=usable_cpus(), memory=usable_memory(), gpus=gpus.names())


def usable_cpus() -> float:
    """CPUs this process may use."""
    cores = float(len(os.sched_getaffinity(0)))
    return min(cores, cpu_limit() or cores)


def usable_memory() -> float:
    """Bytes this process may use."""
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(memory, memory_limit() or memory)


def _cpu_model() -> str:
    """`/proc/cpuinfo` has "model name\t: Intel(R) Xeon(R) …" on x86; ARM has no such line."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return os.uname().machine


@dataclass(slots=True)
class HostSpeed:
    """Remembers its last look, which is good for a moment."""

    _seconds: float = 0.0
    _since: float = -math.inf

    def probe(self) -> float:
        """Seconds that the piece of work takes now, or took a moment ago."""
        start = time.perf_counter()
        if start - self._since > _EVERY:
            total = 0
            for number in range(_LOOPS):
                total += number & 7
            self._since = time.perf_counter()
            self._seconds = self._since - start
        return self._seconds
