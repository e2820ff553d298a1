"""Groups above containers, whose limits hold for all containers below together; and how a kubelet names them.

A pod's own limits are no more than the sum of its containers' limits, so while containers in it are managed
its limits are wider by the caps of their pools. Limits of other groups are somebody's decision: they stay,
and a warning says so where they are below a pool's cap.

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
    """A container's group as the kubelet made it."""

    pod_path: str
    pod_uid: str
    container_id: str
    quality: str  # of service: guaranteed, burstable, besteffort


def kubelet_group(path: str) -> KubeletGroup | None:
    """Pod and container by a group's path; None for a group that is no container of a pod."""
    found = _SYSTEMD.fullmatch(path) or _CGROUPFS.fullmatch(path)
    if found is None:
        return None
    pod_path, quality, uid, container = found.groups()
    return KubeletGroup(pod_path, uid.replace("_", "-"), container, quality or "guaranteed")


@dataclass(slots=True)
class _Pod:
    """Its own limits, and the pools of the containers in it by their path."""

    own: SafeLimits
    inside: dict[str, Pool] = field(default_factory=dict)

    def widened(self) -> SafeLimits:
        pools = {pool.name: pool for pool in self.inside.values()}.values()
        return SafeLimits(
            self.own.path,
            None if self.own.cpus is None else self.own.cpus + sum(pool.cpu for pool in pools),
            None if self.own.memory is None else self.own.memory + sum(pool.memory for pool in pools),
        )


class GroupsAbove:
    """The groups above a node's members."""

    def __init__(self, hierarchy: Hierarchy, say: Callable[[str], None]) -> None:
        self._hierarchy = hierarchy
        self._say = say
        self._looked_at = set[tuple[str, str]]()  # with the pool in mind
        self._pods: dict[str, _Pod] = {}
        self._due = set[str]()  # pods to be widened

    @property
    def safe(self) -> dict[str, SafeLimits]:
        """Pods' own limits, which they are left with at the end."""
        return {path: pod.own for path, pod in self._pods.items()}

    def enter(self, path: str, pool: Pool) -> None:
        """A container of a pool is there; nothing is set yet."""
        found = kubelet_group(path)
        if found is not None:
            if found.pod_path not in self._pods:
                self._pods[found.pod_path] = _Pod(self._limits(found.pod_path))
            self._pods[found.pod_path].inside[path] = pool
            self._due.add(found.pod_path)
        for above in _above(found.pod_path if found else path):
            if (above, pool.name) not in self._looked_at:
                self._looked_at.add((above, pool.name))
                self._look_at(above, pool)

    def widen(self) -> None:
        """Give the pods of new containers room."""
        while self._due:
            self._set(self._pods[self._due.pop()].widened())

    def widen_again(self) -> None:
        """Widen all pods once more, after their limits have been put back."""
        self._due = set(self._pods)
        self.widen()

    def leave(self, path: str) -> None:
        """A container is gone, or has its own limits again; the last one leaves its pod as it was."""
        found = kubelet_group(path)
        pod = self._pods.get(found.pod_path) if found else None
        if pod is None or pod.inside.pop(path, None) is None:
            return
        if pod.inside:
            self._due.add(pod.own.path)
        else:
            self._due.discard(pod.own.path)
            del self._pods[pod.own.path]
            self._set(pod.own)

    def most_cpus(self, path: str) -> float | None:
        """CPUs that the groups above allow it."""
        allowed = [self._limits(above).cpus for above in _above(path)]
        return min((cpus for cpus in allowed if cpus is not None), default=None)

    def _look_at(self, above: str, pool: Pool) -> None:
        limits = self._limits(above)
        allowed = []
        if limits.cpus is not None and limits.cpus < pool.cpu:
            allowed.append(f"{limits.cpus:g} CPUs")
        if limits.memory is not None and limits.memory < pool.memory:
            allowed.append(format_bytes(limits.memory))
        if allowed:
            self._say(
                f"the group {above} allows all below it {' and '.join(allowed)}, less than the cap of the "
                f"pool {pool.name}; no more can be had there"
            )

    def _limits(self, path: str) -> SafeLimits:
        try:
            with ContainerGroup(self._hierarchy, path) as group:
                return SafeLimits(path, group.cpu_limit(), group.memory_limit())
        except TrimtabError:
            return SafeLimits(path, None, None)  # it is gone

    def _set(self, limits: SafeLimits) -> None:
        """Set limits of CPU and memory; None leaves that one alone."""
        with contextlib.suppress(TrimtabError), ContainerGroup(self._hierarchy, limits.path) as group:
            for value, limit in ((limits.cpus, group.limit_cpus), (limits.memory, group.limit_memory)):
                if value is not None:
                    with contextlib.suppress(TrimtabError):
                        limit(value)


def _above(path: str) -> Iterator[str]:
    """ "/kubepods/burstable" and "/kubepods" for "/kubepods/burstable/pod1"."""
    while path := path.rpartition("/")[0]:
        yield path
