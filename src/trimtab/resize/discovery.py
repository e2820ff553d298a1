"""Containers found by the path of their control group, with what runtimes and Kubernetes know about them.

Read every period, so only what was made or removed since the last time is looked at; every few seconds
everything is, in case the kernel lost an event. runc, and runtimes that use it, keep a state.json for each
container.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trimtab.kernel import FolderWatch, GroupTree, Hierarchy, process_names
from trimtab.resize.pool import Container, Pool

RUNC_STATES = (Path("/run/runc"), Path("/run/containerd/runc/k8s.io"), Path("/run/docker/runtime-runc/moby"))
# What CRI-O and containerd call the Kubernetes namespace of a container.
_NAMESPACES = ("io.kubernetes.pod.namespace", "io.kubernetes.cri.sandbox-namespace")

Stamp = tuple[int, int]  # a file's inode and time of change: another one, or the same one rewritten
EVERYWHERE = 5.0  # s between two looks at everything
_YOUNG = 2.0  # s in which an empty group is looked at every time: somebody is about to enter it
_OLD = 1.0  # s between two looks at it later
_WILD = "*?["
_RUNC_AT_WORK = "runc:["  # how its process is called until runc has written limits of its own
_PAUSE = "pause"  # it holds a pod's namespaces and does nothing; Kubernetes does not count it either

Describe = Callable[[str], Container | None]


class RuntimeStates:
    """Containers by the folder their state is in. A state of tens of kB is parsed once, not at every look."""

    def __init__(self, folders: Sequence[Path] = RUNC_STATES) -> None:
        self._folders = [str(folder) for folder in folders]
        self._watch = FolderWatch()
        self._watched = set[str]()
        self._seen: dict[str, tuple[Stamp | None, Container | None]] = {}

    @property
    def containers(self) -> dict[str, Container]:
        """By the path of their group."""
        return {container.cgroup: container for _, container in self._seen.values() if container is not None}

    def refresh(self, everywhere: bool = False) -> bool:
        """Look at states that are new or could not be read yet, or at all; whether something is different."""
        changed = self._watch.changed()
        states = set(self._seen) if everywhere or changed is None else self._unread() | changed
        for folder in self._folders:
            if os.path.isdir(folder) and (everywhere or changed is None or folder not in self._watched):
                self._watch.add(folder)
                self._watched.add(folder)
                states.update(os.path.join(folder, name) for name in _listed(folder))
        different = [self._look(state) for state in states]
        return any(different)

    def close(self) -> None:
        """Watch nothing any more."""
        self._watch.close()

    def _unread(self) -> set[str]:
        return {state for state, (_, container) in self._seen.items() if container is None}

    def _look(self, state: str) -> bool:
        """Read one container's state again; whether it has changed."""
        before = self._seen.get(state, (None, None))
        file = Path(state, "state.json")
        try:
            found = file.stat()
        except OSError:
            if os.path.isdir(state):  # its state is yet to be written
                self._seen[state] = (None, None)
            else:
                self._seen.pop(state, None)
            return before[1] is not None
        stamp = found.st_ino, found.st_mtime_ns
        if stamp == before[0]:
            return False
        self._seen[state] = stamp, _read(file)
        return self._seen[state][1] != before[1]


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _read(state: Path) -> Container | None:
    """Labels are a list of "name=value" in `config.labels`; Kubernetes' namespace is among them."""
    try:
        described = json.loads(state.read_text(encoding="utf-8"))
        path = _group_path(described.get("cgroup_paths") or {})
        labels = dict(text.partition("=")[::2] for text in described["config"].get("labels") or ())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # it is being written, or ended a moment ago: next time
    namespace = next((labels[name] for name in _NAMESPACES if name in labels), "")
    return Container(path, labels, namespace) if path else None


def _group_path(paths: Mapping[str, str]) -> str:
    """Below the mount point: "/sys/fs/cgroup/cpu,cpuacct/shop/a" is "/shop/a"; version 2 has "" alone."""
    full = paths.get("cpu") or paths.get("")
    if not full:
        return ""
    below = Path(full).relative_to("/sys/fs/cgroup")
    return "/" + "/".join(below.parts[1:] if "cpu" in paths else below.parts)


@dataclass(slots=True)
class _Empty:
    """A group in which nobody runs: since when it is known, and when to look again (s)."""

    since: float
    due: float


class Discovery:
    """Whom the pools mean. A group counts from when something runs in it, with limits its runtime has set."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        pools: Sequence[Pool],
        states: Sequence[Path] = RUNC_STATES,
        also_below: Sequence[str] = (),
        describe: Describe = lambda path: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`describe` says more about groups than their path, for example about those below `also_below`."""
        self._root = hierarchy.folders.get("cpu") or next(iter(hierarchy.folders.values()))
        self._pools = tuple(pools)
        patterns = {selector.cgroup for pool in pools for selector in pool.select} - {"*"}
        self._tree = GroupTree(self._root, [*map(_until_wild, patterns), *also_below])
        self._states = RuntimeStates(states)
        self._describe = describe
        self._now = now
        self._looked_everywhere = -EVERYWHERE
        self._meant: dict[str, Container] = {}  # by the pools, by path
        self._empty: dict[str, _Empty] = {}
        self._found: list[Container] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __call__(self, descriptions_changed: bool = False) -> Sequence[Container]:
        """Containers there now; `descriptions_changed` if `describe` would answer otherwise than before."""
        now = self._now()
        everywhere = now >= self._looked_everywhere + EVERYWHERE
        if everywhere:
            self._looked_everywhere = now
        changes = self._tree.refresh(everywhere), self._states.refresh(everywhere), descriptions_changed
        if any(changes):
            self._sort_out(now)
        entered = [path for path in self._empty if self._has_been_entered(path, now)]
        for path in entered:
            del self._empty[path]
        if entered or any(changes):
            self._found = [each for path, each in self._meant.items() if path not in self._empty]
        return self._found

    def close(self) -> None:
        """Watch nothing any more."""
        self._tree.close()
        self._states.close()

    def _sort_out(self, now: float) -> None:
        """Whom the pools mean, by all that is known; those not met before count as empty at first."""
        before, described = self._meant, self._states.containers
        self._meant = {
            container.cgroup: container
            for container in self._candidates(described)
            if any(pool.owns(container) for pool in self._pools)
        }
        self._empty = {
            path: self._empty.get(path) or _Empty(now, now)
            for path in self._meant
            if path in self._empty or path not in before
        }

    def _candidates(self, described: dict[str, Container]) -> Iterator[Container]:
        for path in self._tree.paths:
            yield self._describe(path) or described.pop(path, None) or Container(path)
        yield from described.values()  # groups that no pattern leads to

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
    """Every container that some pool means, each once: a single look."""
    with Discovery(hierarchy, pools, states) as discovery:
        return list(discovery())


def _until_wild(pattern: str) -> str:
    """Where to look for groups that match a shell pattern: "/shop" for "/shop/*", "" for "/*".

    `*` in a selector matches any part of a path, slashes too, so below the first wild word all are tried.
    """
    words = pattern.strip("/").split("/")
    wild = [any(sign in word for sign in _WILD) for word in words]
    plain = words[: wild.index(True)] if True in wild else words
    return "".join(f"/{word}" for word in plain)
