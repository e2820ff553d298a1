"""Mount points of the cgroup file systems, and the group of this process."""

import os
from dataclasses import dataclass
from pathlib import Path

from trimtab.kernel.cgroup import V2

_PROC_SELF = Path("/proc/self")
_V1_NEEDED = ("cpuacct", "memory")
_V1_OPTIONAL = ("cpu", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The folders of this process's own group: one per controller in version 1, one under "" in version 2."""

    version: int
    folders: dict[str, Path]


def find_hierarchy(proc: Path = _PROC_SELF) -> Hierarchy | None:
    """The hierarchy that can account for CPU and memory; None where no cgroups are mounted.

    On a hybrid system the controllers are in version 1 and the version 2 mount has none: version 1 is used.
    """
    try:
        mounts = _mounts((proc / "mountinfo").read_text())
        groups = _groups((proc / "cgroup").read_text())
    except OSError:
        return None
    if all(name in mounts for name in _V1_NEEDED):
        names = [name for name in (*_V1_NEEDED, *_V1_OPTIONAL) if name in mounts]
        return Hierarchy(1, {name: _folder(mounts[name], groups.get(name, "/")) for name in names})
    if "" in mounts:
        return Hierarchy(2, {"": _folder(mounts[""], groups.get("", "/"))})
    return None


def mounted(proc: Path = _PROC_SELF) -> Hierarchy | None:
    """The roots of the hierarchy that has the controllers, as this process sees them."""
    own = find_hierarchy(proc)
    if own is None:
        return None
    mounts = _mounts((proc / "mountinfo").read_text())
    return Hierarchy(own.version, {name: mounts[name].point for name in own.folders})


def passing_down(hierarchy: Hierarchy) -> Hierarchy | None:
    """The hierarchy in which a new group can have CPU and memory limits; None where there is none.

    Version 1 allows it below any group. In version 2 a group with processes passes no controller on, so it is
    the nearest ancestor whose `cgroup.subtree_control` ("cpuset cpu io memory") names both.
    """
    if hierarchy.version == 1:
        return hierarchy if "cpu" in hierarchy.folders else None
    folder = hierarchy.folders[""]
    while (folder / V2.controllers).exists():
        try:
            passed = (folder / V2.subtree_control).read_text().split()
        except OSError:
            passed = []
        if {"cpu", "memory"} <= set(passed):
            return Hierarchy(2, {"": folder})
        folder = folder.parent
    return None


@dataclass(frozen=True, slots=True)
class _Mount:
    point: Path
    root: str


def _mounts(mountinfo: str) -> dict[str, _Mount]:
    """Mounts by controller; "" is version 2.

    A line is "36 35 0:34 /root /mount/point rw,relatime shared:1 - cgroup cgroup rw,memory": mount root and
    point are fields 4 and 5, after the lone "-" come type, source and the options that name the controllers.
    """
    mounts: dict[str, _Mount] = {}
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        fields, (kind, *rest) = head.split(), tail.split() or [""]
        if len(fields) < 5 or kind not in ("cgroup", "cgroup2"):
            continue
        mount = _Mount(Path(fields[4].replace("\\040", " ")), fields[3])
        names = [""] if kind == "cgroup2" else rest[-1].split(",")
        for name in names:
            mounts.setdefault(name, mount)
    return mounts


def _groups(text: str) -> dict[str, str]:
    """Group paths by controller. Lines are "4:memory:/some/group"; version 2's is "0::/some/group"."""
    rows = (line.split(":", 2) for line in text.splitlines())
    return {name: path for _, controllers, path in rows for name in controllers.split(",")}


def _folder(mount: _Mount, group: str) -> Path:
    """A group's folder; the mount's root where the path is not mounted, as inside a container."""
    inside = os.path.relpath(group, mount.root)
    folder = mount.point if inside.startswith("..") else mount.point / inside
    return folder if folder.is_dir() else mount.point
