"""Finds containers by their control group's path, with labels and namespaces from runtimes or Kubernetes.

Called every period, so only folders that changed since the last time are read; every few seconds all are, in
case the kernel lost an event. runc, and runtimes that use it, write a state.json for each container.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.kernel import Closing, FolderWatch, GroupTree, Hierarchy, process_names
from trimtab.resize.pool import Container, Pool

RUNC_STATES = (Path("/run/runc"), Path("/run/containerd/runc/k8s.io"), Path("/run/docker/runtime-runc/moby"))
# Labels of CRI-O and containerd for the Kubernetes namespace of a container.
_NAMESPACES = ("io.kubernetes.pod.namespace", "io.kubernetes.cri.sandbox-namespace")

Stamp = tuple[int, int]  # a file's inode and time of change
EVERYWHERE = 5.0  # s between two complete scans
_YOUNG = 2.0  # s in which an empty group is checked every time: a process is about to enter it
_OLD = 1.0  # s between two checks later
_WILD = "*?["
_RUNC_AT_WORK = "runc:["  # prefix of its process's name until runc has written its limits
_PAUSE = "pause"  # it holds a pod's namespaces and does nothing; Kubernetes does not count it either

Describe = Callable[[str], Container | None]


class RuntimeStates:
    """Containers by the folder of their state. A state of tens of kB is parsed once, not at every call."""

    def __init__(self, folders: Sequence[Path] = RUNC_STATES) -> None:
        self._folders = [str(folder) for folder in folders]
        self._watch = FolderWatch()
        self._watched = set[str]()
        self._containers: dict[str, tuple[Stamp | None, Container | None]] = {}

    @property
    def containers(self) -> dict[str, Container]:
        """Containers by the path of their group."""
        return {
            container.cgroup: container for _, container in self._containers.values() if container is not None
        }

    def refresh(self, everywhere: bool = False) -> bool:
        """Read states that are new or could not be read yet, or all; whether something has changed."""
        changed = self._watch.changed()
        if everywhere or changed is None:
            states = set(self._containers)
        else:
            unread = (state for state, (_, container) in self._containers.items() if container is None)
            states = {*unread, *changed}
        for folder in self._folders:
            if os.path.isdir(folder) and (everywhere or changed is None or folder not in self._watched):
                self._watch.add(folder)
                self._watched.add(folder)
                with contextlib.suppress(OSError):
                    states.update(os.path.join(folder, name) for name in os.listdir(folder))
        changes = [self._read(state) for state in states]
        return any(changes)

    def close(self) -> None:
        self._watch.close()

    def _read(self, state: str) -> bool:
        """Read one container's state again; whether it has changed."""
        before = self._containers.get(state, (None, None))
        file = Path(state, "state.json")
        try:
            status = file.stat()
        except OSError:
            if os.path.isdir(state):  # its state is yet to be written
                self._containers[state] = (None, None)
            else:
                self._containers.pop(state, None)
            return before[1] is not None
        stamp = status.st_ino, status.st_mtime_ns
        if stamp == before[0]:
            return False
        self._containers[state] = stamp, _parse(file)
        return self._containers[state][1] != before[1]


def _parse(state: Path) -> Container | None:
    """Labels are a list of "name=value" in `config.labels`; Kubernetes' namespace is among them."""
    try:
        described = json.loads(state.read_text(encoding="utf-8"))
        path = _group_path(described.get("cgroup_paths") or {})
        labels = dict(text.partition("=")[::2] for text in described["config"].get("labels") or ())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # it is being written, or has just ended: next time
    namespace = next((labels[name] for name in _NAMESPACES if name in labels), "")
    return Container(path, labels, namespace) if path else None


def _group_path(paths: Mapping[str, str]) -> str:
    """Path below the mount: "/sys/fs/cgroup/cpu,cpuacct/shop/a" is "/shop/a"; version 2 has only ""."""
    full = paths.get("cpu") or paths.get("")
    if not full:
        return ""
    below = Path(full).relative_to("/sys/fs/cgroup")
    return "/" + "/".join(below.parts[1:] if "cpu" in paths else below.parts)


@dataclass(slots=True)
class _Empty:
    """A group without processes: since when it is known, and when to check it again (s)."""

    since: float
    due: float


class Discovery(Closing):
    """Finds the pools' containers. A group counts once a process runs in it and has its runtime's limits."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        pools: Sequence[Pool],
        states: Sequence[Path] = RUNC_STATES,
        also_below: Sequence[str] = (),
        describe: Describe = lambda path: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`describe` gives labels of groups, for example of those below `also_below`."""
        self._root = hierarchy.folders.get("cpu") or next(iter(hierarchy.folders.values()))
        self._pools = tuple(pools)
        patterns = {selector.cgroup for pool in pools for selector in pool.select} - {"*"}
        self._tree = GroupTree(self._root, [*map(_until_wild, patterns), *also_below])
        self._states = RuntimeStates(states)
        self._describe = describe
        self._now = now
        self._scanned = -EVERYWHERE
        self._selected: dict[str, Container] = {}  # by path
        self._empty: dict[str, _Empty] = {}
        self._running: list[Container] = []

    def __call__(self, descriptions_changed: bool = False) -> Sequence[Container]:
        """Running containers; `descriptions_changed` if `describe` would answer differently than before."""
        now = self._now()
        everywhere = now >= self._scanned + EVERYWHERE
        if everywhere:
            self._scanned = now
        changes = self._tree.refresh(everywhere), self._states.refresh(everywhere), descriptions_changed
        if any(changes):
            self._select(now)
        entered = [path for path in self._empty if self._has_been_entered(path, now)]
        for path in entered:
            del self._empty[path]
        if entered or any(changes):
            self._running = [
                container for path, container in self._selected.items() if path not in self._empty
            ]
        return self._running

    def close(self) -> None:
        self._tree.close()
        self._states.close()

    def _select(self, now: float) -> None:
        """Select the pools' containers; new ones count as empty at first."""
        before, described = self._selected, self._states.containers
        self._selected = {
            container.cgroup: container
            for container in self._candidates(described)
            if any(pool.owns(container) for pool in self._pools)
        }
        self._empty = {
            path: self._empty.get(path) or _Empty(now, now)
            for path in self._selected
            if path in self._empty or path not in before
        }

    def _candidates(self, described: dict[str, Container]) -> Iterator[Container]:
        for path in self._tree.paths:
            yield self._describe(path) or described.pop(path, None) or Container(path)
        yield from described.values()  # groups that no pattern matches

    def _has_been_entered(self, path: str, now: float) -> bool:
        empty = self._empty[path]
        if now < empty.due:
            return False
        names = process_names(self._root / path.lstrip("/"))
        if any(not name.startswith(_RUNC_AT_WORK) and name != _PAUSE for name in names):
            return True
        empty.due = now if now < empty.since + _YOUNG else now + _OLD
        return False


def containers(
    hierarchy: Hierarchy, pools: Sequence[Pool], states: Sequence[Path] = RUNC_STATES
) -> list[Container]:
    """The pools' containers now."""
    with Discovery(hierarchy, pools, states) as discovery:
        return list(discovery())


def _until_wild(pattern: str) -> str:
    """The group above all that match a shell pattern: "/shop" for "/shop/*", "" for "/*".

    `*` in a selector matches slashes too, so all groups below the first wild word are candidates.
    """
    words = pattern.strip("/").split("/")
    wild = [any(sign in word for sign in _WILD) for word in words]
    plain = words[: wild.index(True)] if True in wild else words
    return "".join(f"/{word}" for word in plain)
