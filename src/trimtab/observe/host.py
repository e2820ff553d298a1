"""The machine a run is made on, as the run sees it: less than the whole where limits are set."""

import os
from pathlib import Path

from trimtab.core import Host
from trimtab.kernel import cpu_limit, memory_limit
from trimtab.observe.gpu import Gpus


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
