"""Groups above containers, whose limits hold for all containers below, and a kubelet's names for them.

A pod's own limits are no more than the sum of its containers' limits, so while containers in it are managed
its limits are raised by the caps of their pools. Limits of other groups stay as they are, with a warning
where they are below a pool's cap.

A kubelet with the driver cgroupfs makes /kubepods/burstable/pod<uid>/<container>, without the middle word for
pods whose quality of service is guaranteed. With the driver systemd it makes slices, whose names repeat those
above, with underscores in the uid:
/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trimtab.core import TrimtabError, format_bytes
from trimtab.kernel import ContainerGroup, Hierarchy, SafeLimits
from trimtab.resize.pool import Pool

KUBELET_ROOTS = ("/kubepods", "/kubepods.slice")

_CGROUPFS = re.compile(r"(.*/kubepods(?:/(burstable|besteffort))?/pod([^/]+))/([0-9a-f]+)")
_SYSTEMD = re.compile(
    r"(.*/kubepods\.slice(?:/kubepods-(burstable|besteffort)\.slice)?"
    r"/kubepods(?:-(?:burstable|besteffort))?-pod([^/]+)\.slice)/(?:cri-containerd-|crio-|docker-)?([0-9a-f]+)\.scope"
)


@dataclass(frozen=True, slots=True)
class KubeletGroup:
    """A container's group that a kubelet made."""

    pod_path: str
    pod_uid: str
    container_id: str
    quality: str  # of service: guaranteed, burstable, besteffort


def kubelet_group(path: str) -> KubeletGroup | None:
    """Pod and container in a group's path; None for a group that is no container of a pod."""
    match = _SYSTEMD.fullmatch(path) or _CGROUPFS.fullmatch(path)
    if match is None:
        return None
    pod_path, quality, uid, container = match.groups()
    return KubeletGroup(pod_path, uid.replace("_", "-"), container, quality or "guaranteed")


@dataclass(slots=True)
class _Pod:
    """A pod's own limits, and the pools of its containers by path."""

    own: SafeLimits
    pools: dict[str, Pool] = field(default_factory=dict)

    def widened(self) -> SafeLimits:
        pools = {pool.name: pool for pool in self.pools.values()}.values()
        return SafeLimits(
            self.own.path,
            None if self.own.cpus is None else self.own.cpus + sum(pool.cpu for pool in pools),
            None if self.own.memory is None else self.own.memory + sum(pool.memory for pool in pools),
        )


class GroupsAbove:
    """The groups above a node's members."""

    def __init__(self, hierarchy: Hierarchy, warn: Callable[[str], None]) -> None:
        self._hierarchy = hierarchy
        self._warn = warn
        self._checked = set[tuple[str, str]]()  # path and pool
        self._pods: dict[str, _Pod] = {}
        self._due = set[str]()  # pods whose limits are to be raised

    @property
    def safe(self) -> dict[str, SafeLimits]:
        """Pods' own limits, which are restored at the end."""
        return {path: pod.own for path, pod in self._pods.items()}

    def enter(self, path: str, pool: Pool) -> None:
        """Add a container of a pool; nothing is set yet."""
        group = kubelet_group(path)
        if group is not None:
            if group.pod_path not in self._pods:
                self._pods[group.pod_path] = _Pod(self._limits(group.pod_path))
            self._pods[group.pod_path].pools[path] = pool
            self._due.add(group.pod_path)
        for above in _above(group.pod_path if group else path):
            if (above, pool.name) not in self._checked:
                self._checked.add((above, pool.name))
                self._check(above, pool)

    def widen(self, again: bool = False) -> None:
        """Raise the limits of the pods of new containers; `again` of all, after limits were restored."""
        due, self._due = set(self._pods) if again else self._due, set()
        for path in due:
            self._set(self._pods[path].widened())

    def leave(self, path: str) -> None:
        """Remove a container; with the last one its pod's own limits are restored."""
        group = kubelet_group(path)
        pod = self._pods.get(group.pod_path) if group else None
        if pod is None or pod.pools.pop(path, None) is None:
            return
        if pod.pools:
            self._due.add(pod.own.path)
        else:
            self._due.discard(pod.own.path)
            del self._pods[pod.own.path]
            self._set(pod.own)

    def most_cpus(self, path: str) -> float | None:
        """CPUs that the groups above allow; None without a limit."""
        allowed = [self._limits(above).cpus for above in _above(path)]
        return min((cpus for cpus in allowed if cpus is not None), default=None)

    def _check(self, above: str, pool: Pool) -> None:
        limits = self._limits(above)
        allowed = []
        if limits.cpus is not None and limits.cpus < pool.cpu:
            allowed.append(f"{limits.cpus:g} CPUs")
        if limits.memory is not None and limits.memory < pool.memory:
            allowed.append(format_bytes(limits.memory))
        if allowed:
            self._warn(
                f"the group {above} limits all groups below it to {' and '.join(allowed)}, less than the cap "
                f"of the pool {pool.name}; containers there get no more"
            )

    def _limits(self, path: str) -> SafeLimits:
        try:
            with ContainerGroup(self._hierarchy, path) as group:
                return SafeLimits(path, group.cpu_limit(), group.memory_limit(), group.inode)
        except TrimtabError:
            return SafeLimits(path, None, None)  # it has ended

    def _set(self, limits: SafeLimits) -> None:
        """Set CPU and memory limits; None leaves one as it is."""
        with contextlib.suppress(TrimtabError), ContainerGroup(self._hierarchy, limits.path) as group:
            for value, limit in ((limits.cpus, group.limit_cpus), (limits.memory, group.limit_memory)):
                if value is not None:
                    with contextlib.suppress(TrimtabError):
                        limit(value)


def _above(path: str) -> Iterator[str]:
    """ "/kubepods/burstable" and "/kubepods" for "/kubepods/burstable/pod1"."""
    while path := path.rpartition("/")[0]:
        yield path
