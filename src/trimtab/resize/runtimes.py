"""What runtimes say about their containers: runc, and those who use it, keep a `state.json` for each."""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.kernel import FolderWatch
from trimtab.resize.pool import Container

RUNC_STATES = (Path("/run/runc"), Path("/run/containerd/runc/k8s.io"), Path("/run/docker/runtime-runc/moby"))
# What CRI-O and containerd call the Kubernetes namespace of a container.
_NAMESPACES = ("io.kubernetes.pod.namespace", "io.kubernetes.cri.sandbox-namespace")

Stamp = tuple[int, int]  # a file's inode and time of change: another one, or the same one rewritten


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
        """Whether what is known of one container has changed."""
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
        told = json.loads(state.read_text(encoding="utf-8"))
        path = _group_path(told.get("cgroup_paths") or {})
        labels = dict(text.partition("=")[::2] for text in told["config"].get("labels") or ())
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
