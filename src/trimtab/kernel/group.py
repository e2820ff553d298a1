"""A control group of our own: created, filled, read, emptied and removed; version 1 or 2."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from trimtab.core import TrimtabError
from trimtab.kernel.hierarchy import Hierarchy, find_hierarchy, passing_down
from trimtab.kernel.owner import Owner

_REMOVE_WITHIN = 5.0  # s; a group stays busy for a moment after its last process has died


class NoGroupError(TrimtabError):
    """No control group can be made here: none are mounted, or they may not be written."""


class Group:
    """A control group below this process's own one. Use `with create()`, or `remove` it whatever happens."""

    # Controllers of version 1 in which nothing is read or limited.
    _without: ClassVar[tuple[str, ...]] = ("cpu",)

    def __init__(self, version: int, folders: dict[str, Path]) -> None:
        self.version = version
        self._folders = folders

    @classmethod
    def create(cls, hierarchy: Hierarchy | None = None, name: str | None = None) -> Self:
        """A new, empty group. Without a name given, its name says that this process made it, and a later
        `sweep_groups` removes it once this process is gone."""
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
        """Where such groups are made."""
        if hierarchy is None:
            raise NoGroupError("no control groups are mounted on this machine")
        return hierarchy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()

    @property
    def folders(self) -> dict[str, Path]:
        """Where it is: a folder per controller in version 1, one under "" in version 2."""
        return dict(self._folders)

    @property
    def method(self) -> str:
        """How a profile names this way of watching: cgroup-v1 or cgroup-v2."""
        return f"cgroup-v{self.version}"

    def add(self, pid: int) -> None:
        """Move a process into the group; its later children are born there."""
        for folder in self._folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int]:
        """The processes in the group now."""
        found = set[int]()
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
        return sorted(found - {0})

    def cpu_seconds(self) -> float | None:
        """CPU time all its processes, ended ones too, have used.

        v2's `cpu.stat` begins "usage_usec 123"; v1's `cpuacct.usage` is nanoseconds.
        """
        if self.version == 2:
            usage = keyed(self._folders[""] / "cpu.stat").get("usage_usec")
            return None if usage is None else usage / 1e6
        text = _read(self._folders["cpuacct"] / "cpuacct.usage")
        return None if text is None else int(text) / 1e9

    def memory(self) -> float | None:
        """Bytes in use now: all that is charged less the file cache the kernel could drop at once.

        None in a v2 group whose parent does not pass the memory controller down; a parent that has processes
        of its own, as ours has us, cannot.
        """
        charged, idle = (
            (self._folders[""] / "memory.current", "inactive_file")
            if self.version == 2
            else (self._folders["memory"] / "memory.usage_in_bytes", "total_inactive_file")
        )
        text = _read(charged)
        if text is None:
            return None
        return max(0.0, int(text) - keyed(charged.with_name("memory.stat")).get(idle, 0.0))

    def memory_peak(self) -> float | None:
        """The most bytes ever charged, file cache included; None on kernels that do not keep it."""
        text = _read(
            self._folders[""] / "memory.peak"
            if self.version == 2
            else self._folders["memory"] / "memory.max_usage_in_bytes"
        )
        return None if text is None else float(text)

    def io(self) -> tuple[float, float] | None:
        """Bytes read from and written to disks; None where the kernel does not account for it.

        v2's `io.stat` has "8:0 rbytes=1459200 wbytes=314773504 rios=…" per device. v1's blkio does not see
        writes that go through the page cache, which is most of them, so it is not asked.
        """
        if self.version == 2:
            text = _read(self._folders[""] / "io.stat")
            return None if text is None else (_field(text, "rbytes"), _field(text, "wbytes"))
        return None

    def signal(self, number: int) -> None:
        """Send a signal to every process in the group."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End every process in the group at once; waits until the group is empty."""
        with contextlib.suppress(OSError, KeyError):
            (self._folders[""] / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + _REMOVE_WITHIN
        while self.pids() and time.monotonic() < deadline:
            self.signal(signal.SIGKILL)
            time.sleep(0.01)

    def remove(self) -> None:
        """Kill what is left inside and remove the group; does nothing when it is gone already."""
        if self.pids():
            self.kill()
        for folder in self._folders.values():
            _remove_folder(folder)


def sweep_groups(hierarchy: Hierarchy | None = None, own: bool = False) -> list[str]:
    """Remove groups whose owner has died, with whatever still runs in them; their names.

    With `own`, this process's groups too: for one that was told to end while it made a group.
    """
    me = Owner.current() if own else None
    hierarchy = hierarchy or find_hierarchy()
    if hierarchy is None:
        return []
    names: dict[str, dict[str, Path]] = {}
    for place in (hierarchy, passing_down(hierarchy) or hierarchy):
        for controller, parent in place.folders.items():
            for folder in _subfolders(parent):
                owner = Owner.of(folder.name)
                if owner is not None and (owner == me or owner.is_gone()):
                    names.setdefault(folder.name, {})[controller] = folder
    for folders in names.values():
        Group(hierarchy.version, folders).remove()
    return sorted(names)


def _subfolders(parent: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (path for path in parent.iterdir() if path.is_dir())


def _remove_folder(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVE_WITHIN
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)


def keyed(path: Path) -> dict[str, float]:
    """A file of "name number" lines."""
    pairs = (line.split() for line in (_read(path) or "").splitlines())
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}


def _field(text: str, name: str) -> float:
    return sum(float(word.partition("=")[2]) for word in text.split() if word.startswith(f"{name}="))


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
