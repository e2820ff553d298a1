"""Limits of CPU and memory: which control groups there are, and whether ours can be made and limited."""

from collections.abc import Iterator

from trimtab.core import TrimtabError
from trimtab.kernel import Hierarchy, LimitedGroup, find_hierarchy
from trimtab.serve.doctor.finding import Finding, missing, ok, warning, why
from trimtab.serve.settings import Settings

_CPUS, _MEMORY = 0.5, 64 * 2**20  # of the trial's group, in which nothing runs
_LOCAL = "local:"
_MOUNT = "mount -t cgroup2 none /sys/fs/cgroup (in a container: give it the host's)"
_DELEGATE = "run as root, or under systemd with Delegate=yes"


def look(settings: Settings) -> Iterator[Finding]:
    """What is mounted; then a group of our own, limited and removed."""
    is_local = settings.engine.startswith(_LOCAL)
    hierarchy = find_hierarchy()
    if hierarchy is None:
        yield missing(
            "control groups",
            "none are mounted with cpu and memory",
            "local:// jobs, trimtab agent, profiles by group",
            _MOUNT,
            needed=is_local,
        )
        return
    seen = f"version {hierarchy.version}"
    if hierarchy.version == 1:
        seen += f": {', '.join(sorted(hierarchy.folders))}"
    yield ok("control groups", seen)
    yield from _trial(hierarchy, is_local)


def _trial(hierarchy: Hierarchy, is_local: bool) -> Iterator[Finding]:
    what = "limits"
    try:
        with LimitedGroup.create(hierarchy) as group:
            group.limit_cpus(_CPUS)
            group.limit_memory(_MEMORY)
            yield ok(what, "set on a group of our own, which is gone again", needed=is_local)
            yield _traps(group)
    except (TrimtabError, OSError) as error:
        yield missing(
            what, why(error), "local:// jobs, trimtab agent, profiles by group", _DELEGATE, needed=is_local
        )


def _traps(group: LimitedGroup) -> Finding:
    """Version 1 holds who runs out of memory until it gets more; version 2 slows it down before."""
    file, exists = group.memory_trap()
    how = "out-of-memory traps" if group.version == 1 else "slowing down before the limit"
    if exists:
        return ok("memory grants", f"{how} ({file})")
    return warning(
        "memory grants",
        f"no {file}",
        "granting memory instead of a kill: trimtab agent",
        "a kernel with that file (Linux 4.5 or later)",
    )
