"""Which containers are there? Control groups by their path, with what runtimes say about them."""

import fnmatch
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trimtab.kernel import Hierarchy
from trimtab.resize.pool import Container, Pool

_RUNC_STATES = (Path("/run/runc"), Path("/run/containerd/runc/k8s.io"), Path("/run/docker/runtime-runc/moby"))
_WILD = "*?["


def containers(
    hierarchy: Hierarchy, pools: Sequence[Pool], states: Sequence[Path] = _RUNC_STATES
) -> list[Container]:
    """Every group that some pool's selector could mean, each once."""
    root = hierarchy.folders["" if hierarchy.version == 2 else "cpu"]
    told = {container.cgroup: container for container in _told_by_runtimes(states)}
    paths = dict.fromkeys(told)
    for pattern in {selector.cgroup for pool in pools for selector in pool.select if selector.cgroup != "*"}:
        paths.update(dict.fromkeys(_matching(root, pattern)))
    return [told.get(path, Container(path)) for path in paths]


def _matching(root: Path, pattern: str) -> Iterator[str]:
    """Groups whose path matches a shell pattern, looked for only where it can lead.

    `*` in a selector matches any part of a path, slashes too, so below the first wild word all are tried.
    """
    words = pattern.strip("/").split("/")
    plain = list(_until_wild(words))
    start = root.joinpath(*plain)
    if len(plain) == len(words):
        if start.is_dir():
            yield pattern
        return
    for folder, names, _ in os.walk(start, onerror=lambda error: None):
        for name in names:
            path = "/" + os.path.relpath(os.path.join(folder, name), root)
            if fnmatch.fnmatchcase(path, pattern):
                yield path


def _until_wild(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if any(sign in word for sign in _WILD):
            return
        yield word


def _told_by_runtimes(states: Sequence[Path]) -> Iterator[Container]:
    """Containers as runc and those who use it keep them: `state.json` has the group's paths and labels.

    Labels are a list of "name=value" in `config.labels`; Kubernetes' namespace is among them.
    """
    for folder in states:
        for state in sorted(folder.glob("*/state.json")):
            try:
                told = json.loads(state.read_text(encoding="utf-8"))
                path = _group_path(told.get("cgroup_paths") or {})
                labels = dict(text.partition("=")[::2] for text in told["config"].get("labels") or ())
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue  # it is being written, or ended a moment ago: next time
            if path:
                yield Container(path, labels, labels.get("io.kubernetes.pod.namespace", ""))


def _group_path(paths: dict[str, str]) -> str:
    """Below the mount point: "/sys/fs/cgroup/cpu,cpuacct/shop/a" is "/shop/a"; version 2 has "" alone."""
    full = paths.get("cpu") or paths.get("")
    if not full:
        return ""
    below = Path(full).relative_to("/sys/fs/cgroup")
    return "/" + "/".join(below.parts[1:] if "cpu" in paths else below.parts)
