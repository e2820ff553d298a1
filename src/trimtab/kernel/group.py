"""Control groups that Trimtab makes: created, limited, filled, read, emptied and removed; version 1 or 2."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from trimtab.core import TrimtabError
from trimtab.kernel.cgroup import (
    NO_QUOTA,
    PROCS,
    USUAL_PERIOD,
    V1,
    V2,
    codec,
    io_bytes,
    keyed,
    memory_limit as parse_memory_limit,
    pids,
    quota_of,
)
from trimtab.kernel.hierarchy import Hierarchy, find_hierarchy, passing_down
from trimtab.kernel.process import Owner

_REMOVE_WITHIN = 5.0  # s; a group stays busy for a moment after its last process has ended


class NoGroupError(TrimtabError):
    """No control group can be made here: none are mounted, or they may not be written."""


class Group:
    """A control group below this process's own one. Use `with create()`, or `remove` it in any case."""

    # Controllers of version 1 in which nothing is read or limited.
    _without: ClassVar[tuple[str, ...]] = ("cpu", "pids")

    def __init__(self, version: int, folders: dict[str, Path]) -> None:
        self.version = version
        self._codec = codec(version)
        self._folders = folders

    @classmethod
    def create(cls, hierarchy: Hierarchy | None = None, name: str | None = None) -> Self:
        """A new, empty group. By default its name says which process made it, and a later `sweep_groups`
        removes it once this process has ended."""
        hierarchy = cls._parent(hierarchy or find_hierarchy())
        name = name or Owner.current().name(secrets.token_hex(4))
        group = cls(hierarchy.version, {})
        for controller, parent in hierarchy.folders.items():
            if controller in cls._without:
                continue
            try:
                os.mkdir(parent / name)
            except OSError as error:
                group.remove()
                raise NoGroupError(f"no control group can be made in {parent}: {error.strerror}") from None
            group._folders[controller] = parent / name
        return group

    @classmethod
    def _parent(cls, hierarchy: Hierarchy | None) -> Hierarchy:
        """The hierarchy in which such groups are made."""
        if hierarchy is None:
            raise NoGroupError("no control groups are mounted on this machine")
        return hierarchy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()

    @property
    def folders(self) -> dict[str, Path]:
        """Its folders: one per controller in version 1, one under "" in version 2."""
        return dict(self._folders)

    @property
    def method(self) -> str:
        """The name in profiles: cgroup-v1 or cgroup-v2."""
        return f"cgroup-v{self.version}"

    def add(self, pid: int) -> None:
        """Move a process into the group; its later children start there."""
        for folder in self._folders.values():
            (folder / PROCS).write_text(str(pid))

    def pids(self) -> list[int]:
        return sorted({pid for folder in self._folders.values() for pid in pids(folder)} - {0})

    def cpu_seconds(self) -> float | None:
        """CPU time of all its processes, including ended ones."""
        text = self._read(self._codec.cpu_usage)
        return None if text is None else self._codec.cpu_seconds(text.encode())

    def memory(self) -> float | None:
        """Bytes in use now: charged bytes less the file cache that the kernel could drop at once.

        None in a v2 group whose parent does not pass the memory controller down; a parent that has processes
        itself, such as this one, cannot.
        """
        text = self._read(self._codec.memory_usage)
        if text is None:
            return None
        idle = keyed(self._read(self._codec.memory_stat) or "").get(self._codec.inactive_file, 0.0)
        return max(0.0, int(text) - idle)

    def memory_peak(self) -> float | None:
        """The most bytes ever charged, file cache included; None on kernels without this file."""
        text = self._read(self._codec.memory_peak)
        return None if text is None else float(text)

    def cpu_limit(self) -> float | None:
        """CPUs that its quota allows; None without a limit."""
        text = self._read(self._codec.cpu_quota)
        quota, period = (NO_QUOTA, None) if text is None else self._codec.quota(text.encode())
        return quota / (period or int(self._read(V1.cpu_period) or USUAL_PERIOD)) if quota > 0 else None

    def memory_limit(self) -> float | None:
        """Bytes it may have; None without a limit."""
        text = self._read(self._codec.memory_limit)
        return None if text is None else parse_memory_limit(text)

    def io(self) -> tuple[float, float] | None:
        """Bytes read from and written to disks; None where the kernel does not account for it.

        v1's blkio misses writes through the page cache, which is most of them: it is not read.
        """
        text = self._read(V2.io_stat) if self.version == 2 else None
        return None if text is None else io_bytes(text)

    def signal(self, number: int) -> None:
        """Send a signal to every process in the group."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End every process in the group at once; waits until the group is empty."""
        with contextlib.suppress(OSError, KeyError):
            (self._folders[""] / V2.kill).write_text("1")
        deadline = time.monotonic() + _REMOVE_WITHIN
        while self.pids() and time.monotonic() < deadline:
            self.signal(signal.SIGKILL)
            time.sleep(0.01)

    def remove(self) -> None:
        """Kill its processes and remove the group; does nothing when it is removed already."""
        if self.pids():
            self.kill()
        deadline = time.monotonic() + _REMOVE_WITHIN
        for folder in self._folders.values():
            while folder.exists():
                try:
                    os.rmdir(folder)
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.02)

    def _file(self, name: str) -> Path | None:
        """Path of one of the codec's files; None where its controller is not mounted."""
        folder = self._folders.get(self._codec.controller(name))
        return None if folder is None else folder / name

    def _read(self, name: str) -> str | None:
        path = self._file(name)
        try:
            return None if path is None else path.read_text()
        except OSError:
            return None


class LimitedGroup(Group):
    """A group that can have limits; a new one has none."""

    _without: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _parent(cls, hierarchy: Hierarchy | None) -> Hierarchy:
        parent = passing_down(super()._parent(hierarchy))
        if parent is None:
            raise NoGroupError(
                "no control group here passes the cpu and memory controllers down to a new one"
            )
        return parent

    def limit_cpus(self, cpus: float | None, period: float = 0.1) -> None:
        """Allow so many CPUs in every `period` seconds; None for no limit."""
        microseconds = round(period * 1e6)
        if self.version == 1:  # a quota must fit the period at every moment
            self._write(V1.cpu_quota, str(NO_QUOTA))
            self._write(V1.cpu_period, str(microseconds))
        quota = quota_of(cpus, microseconds)
        self._write(self._codec.cpu_quota, self._codec.quota_text(quota, microseconds))

    def weigh_cpu(self, shares: float) -> None:
        """Set its part of a busy CPU, relative to its neighbours' shares; the default is 1024."""
        self._write(self._codec.cpu_weight, self._codec.weight_text(shares))

    def limit_memory(self, count: float) -> None:
        """Allow so many bytes, and no swap where the kernel can limit it."""
        limit = self._codec.memory_text(round(count))
        files = [self._codec.memory_limit]
        if self.version == 1 and (both := self._read(V1.memory_and_swap_limit)) is not None:
            # Memory with swap may never be less than memory: the one that grows is written first.
            files.insert(0 if count > float(both) else 1, V1.memory_and_swap_limit)
        for file in files:
            self._write(file, limit)
        if self.version == 2 and self._read(V2.swap_limit) is not None:
            self._write(V2.swap_limit, "0")

    def limit_processes(self, count: int) -> bool:
        """Allow so many processes and threads; False where groups here have no such limit."""
        if self._read(self._codec.process_limit) is None:
            return False
        self._write(self._codec.process_limit, str(count))
        return True

    def throttled(self) -> tuple[int, float]:
        """Number of periods in which the quota ran out, and seconds throttled in total."""
        stat = keyed(self._read(self._codec.cpu_stat) or "")
        return int(stat.get("nr_throttled", 0)), self._codec.throttled_seconds(stat)

    def out_of_memory_kills(self) -> int:
        """Number of its processes that the kernel killed for lack of memory."""
        return int(keyed(self._read(self._codec.memory_events) or "").get("oom_kill", 0))

    def memory_trap(self) -> tuple[str, bool]:
        """The file by which `MemoryTraps` pauses a group at its limit, and whether this kernel has it."""
        path = self._file(self._codec.memory_trap)
        return self._codec.memory_trap, path is not None and path.exists()

    def _write(self, name: str, text: str) -> None:
        path = self._file(name)
        if path is None:
            raise NoGroupError(f"{name} of a control group cannot be set: its controller is not mounted")
        try:
            path.write_text(text)
        except OSError as error:
            raise NoGroupError(f"{name} of a control group cannot be set: {error.strerror}") from None


def sweep_groups(hierarchy: Hierarchy | None = None, own: bool = False) -> list[str]:
    """Remove groups whose owner has ended, with processes that still run in them; their names.

    With `own`, this process's groups too: for one that is interrupted while it makes a group.
    """
    me = Owner.current() if own else None
    hierarchy = hierarchy or find_hierarchy()
    if hierarchy is None:
        return []
    names: dict[str, dict[str, Path]] = {}
    for place in (hierarchy, passing_down(hierarchy) or hierarchy):
        for controller, parent in place.folders.items():
            with contextlib.suppress(OSError):
                for folder in parent.iterdir():
                    owner = Owner.of(folder.name)
                    if owner is not None and (owner == me or owner.is_gone()) and folder.is_dir():
                        names.setdefault(folder.name, {})[controller] = folder
    for folders in names.values():
        Group(hierarchy.version, folders).remove()
    return sorted(names)


def cpu_limit() -> float | None:
    """CPUs this process may use: the tightest quota from its group up to the root; None without any."""
    limits = (group.cpu_limit() for group in _ancestors("cpu"))
    return min((limit for limit in limits if limit is not None), default=None)


def memory_limit() -> float | None:
    """Bytes this process may use: the tightest limit from its group up to the root; None without any."""
    limits = (group.memory_limit() for group in _ancestors("memory"))
    return min((limit for limit in limits if limit is not None), default=None)


def _ancestors(controller: str) -> Iterator[Group]:
    """This process's group and those above it."""
    hierarchy = find_hierarchy()
    if hierarchy is None:
        return
    key = "" if hierarchy.version == 2 else controller
    folder = hierarchy.folders.get(key)
    while folder is not None and (folder / PROCS).exists():
        yield Group(hierarchy.version, {key: folder})
        folder = folder.parent
