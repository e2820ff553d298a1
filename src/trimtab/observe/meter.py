"""Reads what a run has used, and turns successive readings into a series of rates."""

import itertools
import time
from dataclasses import dataclass

from trimtab.core import Series
from trimtab.kernel import network_bytes, process_io
from trimtab.observe.gpu import Gpus
from trimtab.observe.run import Run

_COLUMNS = ("cpu", "disk_read", "disk_write", "network_in", "network_out")


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals since the start of the run (`cpu` in s, disk and network in bytes) and what is in use at `time`.

    `time` is seconds since the start; `gpu` is None without a GPU, else (busy share, bytes).
    """

    time: float
    cpu: float
    memory: float
    disk_read: float
    disk_write: float
    network_in: float
    network_out: float
    gpu: tuple[float, float] | None


class Meter:
    """Reads one run. What processes had used when last seen stays counted after they have ended."""

    def __init__(self, run: Run, gpus: Gpus) -> None:
        self._run = run
        self._gpus = gpus
        self._cpu: dict[tuple[int, int], float] = {}
        self._disk: dict[tuple[int, int], tuple[float, float]] = {}
        self._network_before = network_bytes(run.pid) or (0.0, 0.0)
        self._network = (0.0, 0.0)

    def read(self) -> Reading:
        """One reading, now."""
        group = self._run.group
        members = self._run.members()
        for member in members:
            key = (member.pid, member.started)
            self._cpu[key] = member.cpu
            if (done := process_io(member.pid)) is not None:
                self._disk[key] = done
        cpu = group.cpu_seconds() if group is not None else None
        memory = group.memory() if group is not None else None
        disk = group.io() if group is not None else None
        disk = disk or (sum(d[0] for d in self._disk.values()), sum(d[1] for d in self._disk.values()))
        received, sent = self._read_network()
        return Reading(
            time=time.monotonic() - self._run.started,
            cpu=sum(self._cpu.values()) if cpu is None else cpu,
            memory=sum(member.memory for member in members) if memory is None else memory,
            disk_read=disk[0],
            disk_write=disk[1],
            network_in=received,
            network_out=sent,
            gpu=self._gpus.usage(),
        )

    def _read_network(self) -> tuple[float, float]:
        now = network_bytes(self._run.pid)
        if now is not None:
            self._network = (now[0] - self._network_before[0], now[1] - self._network_before[1])
        return self._network


def series(readings: list[Reading]) -> Series:
    """Rates between successive readings, each at the time of the later one."""
    pairs = [(before, after) for before, after in itertools.pairwise(readings) if after.time > before.time]
    rates = {
        column: tuple(
            max(0.0, getattr(after, column) - getattr(before, column)) / (after.time - before.time)
            for before, after in pairs
        )
        for column in _COLUMNS
    }
    gpu = [after.gpu for _, after in pairs if after.gpu is not None]
    complete = len(gpu) == len(pairs)
    return Series(
        time=tuple(after.time for _, after in pairs),
        memory=tuple(after.memory for _, after in pairs),
        gpu=tuple(busy for busy, _ in gpu) if complete else (),
        gpu_memory=tuple(memory for _, memory in gpu) if complete else (),
        **rates,
    )
