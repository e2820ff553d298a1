"""A container's control group, whoever made it: its counters read often and cheaply, its limits set.

Files are kept open and read with `pread`: that takes a tenth of opening them every time.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trimtab.core import TrimtabError
from trimtab.kernel.hierarchy import Hierarchy

_NONE_V1 = 2**60  # bytes; version 1 writes "no limit" as a number just below 2^63
_LEAST_QUOTA = 1000  # microseconds; the kernel knows no quota below
_GONE = (errno.ENODEV, errno.ENOENT)


class GroupGoneError(TrimtabError):
    """The container's group has been removed."""


class GroupBusyError(TrimtabError):
    """More memory is in use than the limit that was asked for; the old limit stays."""


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """What a group has counted since it was made."""

    used: float  # CPU s
    periods: int  # in which it ran under a quota
    throttled: int  # of those, in which the quota ran out


class ContainerGroup:
    """A group's files, open until `close`; version 1 or 2."""

    def __init__(self, hierarchy: Hierarchy, path: str) -> None:
        self.path = path
        self.version = hierarchy.version
        inside = path.lstrip("/")
        self._folders = {name: root / inside for name, root in hierarchy.folders.items()}
        self._files: dict[str, int] = {}
        names = (
            {"stat": ("", "cpu.stat"), "memory": ("", "memory.current")}
            if self.version == 2
            else {
                "stat": ("cpu", "cpu.stat"),
                "usage": ("cpuacct", "cpuacct.usage"),
                "memory": ("memory", "memory.usage_in_bytes"),
            }
        )
        try:
            for name, (controller, file) in names.items():
                self._files[name] = os.open(self._folders[controller] / file, os.O_RDONLY | os.O_CLOEXEC)
            self._period = self._quota()[1]  # microseconds
            self._burst = int(self.read_text("cpu.max.burst" if self.version == 2 else "cpu.cfs_burst_us"))
        except OSError as error:
            self.close()
            raise self._said(error, "read") from None
        except KeyError as error:
            raise TrimtabError(f"no {error} controller is mounted here; limits need it") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files; the group itself is left as it is."""
        while self._files:
            os.close(self._files.popitem()[1])

    def cpu(self) -> CpuCounters:
        """The counters now.

        v1's `cpu.stat` is "nr_periods 10 nr_throttled 2 throttled_time 123", a pair per line, and
        `cpuacct.usage` nanoseconds; v2's `cpu.stat` begins "usage_usec 123" and has the same names later.
        """
        stat = self._read("stat", 512).split()
        if self.version == 2:
            pairs = dict(zip(stat[::2], stat[1::2], strict=False))
            return CpuCounters(
                int(pairs[b"usage_usec"]) / 1e6,
                int(pairs.get(b"nr_periods", 0)),
                int(pairs.get(b"nr_throttled", 0)),
            )
        return CpuCounters(int(self._read("usage", 32)) / 1e9, int(stat[1]), int(stat[3]))

    def memory(self) -> int:
        """Bytes charged to it now."""
        return int(self._read("memory", 32))

    def memory_limit(self) -> float | None:
        """Bytes it may have; None without a limit."""
        text = self.read_text("memory.max" if self.version == 2 else "memory.limit_in_bytes")
        return None if text == "max" or int(text) >= _NONE_V1 else float(text)

    def cpu_limit(self) -> float | None:
        """CPUs it may use; None without a limit."""
        quota, period = self._quota()
        return None if quota is None else quota / period

    def limit_cpus(self, cpus: float | None, saved: float = 0.0) -> None:
        """So many CPUs in each of its periods, whose length stays; None for no limit.

        `saved` is how much of what it did not use it may use later, on top, in one period; at most as much again.
        """
        quota = None if cpus is None else max(_LEAST_QUOTA, int(cpus * self._period))
        burst = 0 if quota is None else min(quota, int(saved * self._period))
        before = self._burst
        if burst < before:
            self._write_burst(burst)
        if self.version == 2:
            self.write_text("cpu.max", f"{'max' if quota is None else quota} {self._period}")
        else:
            self.write_text("cpu.cfs_quota_us", str(-1 if quota is None else quota))
        if burst > before:
            self._write_burst(burst)

    def _write_burst(self, burst: int) -> None:
        name = "cpu.max.burst" if self.version == 2 else "cpu.cfs_burst_us"
        self.write_text(name, str(burst))
        self._burst = burst

    def limit_memory(self, count: float | None) -> None:
        """At most so many bytes; None for no limit. Raises `GroupBusyError` where more is in use.

        Version 2 would reclaim and then kill instead of refusing, so there it is looked at before.
        """
        if self.version == 1:
            self._limit_memory_v1(-1 if count is None else int(count))
            return
        if count is not None and self.memory() > count:
            raise GroupBusyError(f"{self.path} uses more than {count:.0f} bytes; its limit stays")
        self.write_text("memory.max", "max" if count is None else str(int(count)))

    def read_text(self, name: str) -> str:
        """One of the group's files, "memory.oom_control" for example."""
        try:
            return self.file(name).read_text().strip()
        except OSError as error:
            raise self._said(error, "read") from None

    def write_text(self, name: str, text: str) -> None:
        """Set one of the group's files."""
        try:
            self.file(name).write_text(text)
        except OSError as error:
            raise self._said(error, "written") from None

    def file(self, name: str) -> Path:
        """Where a file of the group is; in version 1 its name begins with its controller's."""
        return self._folders["" if self.version == 2 else name.partition(".")[0]] / name

    def _limit_memory_v1(self, count: int) -> None:
        """The limit of memory with swap must not lie below that of memory, so it is moved out of the way."""
        both = "memory.memsw.limit_in_bytes"
        swap = int(self.read_text(both)) if self.file(both).exists() else _NONE_V1
        if swap < _NONE_V1 and not 0 <= count <= swap:
            self.write_text(both, str(count))
        self.write_text("memory.limit_in_bytes", str(count))

    def _quota(self) -> tuple[int | None, int]:
        """Microseconds of CPU in every period, and the period; v2's `cpu.max` is "max 100000" without one."""
        if self.version == 2:
            quota, period = self.read_text("cpu.max").split()
            return None if quota == "max" else int(quota), int(period)
        quota, period = (self.read_text(f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        return None if int(quota) < 0 else int(quota), int(period)

    def _read(self, name: str, most: int) -> bytes:
        try:
            return os.pread(self._files[name], most, 0)
        except OSError as error:
            raise self._said(error, "read") from None

    def _said(self, error: OSError, what: str) -> TrimtabError:
        if error.errno in _GONE:
            return GroupGoneError(f"the group {self.path} is gone")
        if error.errno == errno.EBUSY:
            return GroupBusyError(f"{self.path} uses more memory than that; its limit stays")
        return TrimtabError(f"the group {self.path} cannot be {what}: {error.strerror}")
