"""How much of the machine this process may use: the tightest limit on the way from its group to the root."""

from collections.abc import Iterator
from pathlib import Path

from trimtab.kernel.hierarchy import Hierarchy, find_hierarchy

# cgroup v1 writes "no limit" as the largest multiple of the page size below 2**63.
_UNLIMITED = 2.0**60


def cpu_limit() -> float | None:
    """Cores allowed by CPU quota; None when there is no quota.

    v2's `cpu.max` is "max 100000" or "50000 100000"; v1 has `cpu.cfs_quota_us` (-1 for none) and
    `cpu.cfs_period_us`, all in microseconds.
    """
    limits = []
    for folder in _ancestors(find_hierarchy(), "cpu"):
        words = (_read(folder / "cpu.max") or "max").split()
        quota = _read(folder / "cpu.cfs_quota_us")
        if words[0] != "max":
            limits.append(float(words[0]) / float(words[1]))
        elif quota is not None and int(quota) > 0:
            limits.append(int(quota) / int(_read(folder / "cpu.cfs_period_us") or 100000))
    return min(limits, default=None)


def memory_limit() -> float | None:
    """Bytes allowed; None when there is no limit. v2's `memory.max` is "max" or bytes, v1's always bytes."""
    limits = []
    for folder in _ancestors(find_hierarchy(), "memory"):
        text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes") or "max"
        if text != "max" and float(text) < _UNLIMITED:
            limits.append(float(text))
    return min(limits, default=None)


def _ancestors(hierarchy: Hierarchy | None, controller: str) -> Iterator[Path]:
    if hierarchy is None:
        return
    folder = hierarchy.folders.get("" if hierarchy.version == 2 else controller)
    while folder is not None and (folder / "cgroup.procs").exists():
        yield folder
        folder = folder.parent


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
