"""Where a kubelet puts its containers: the group's path says which pod and container it is.

The driver "cgroupfs" makes /kubepods/burstable/pod<uid>/<container>, without the middle word for pods whose
quality of service is "guaranteed". The driver "systemd" makes slices, whose names repeat those above, with
underscores in the uid: /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/
cri-containerd-<container>.scope.
"""

import re
from dataclasses import dataclass

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
    """What a group's path says; None for one that is no container of a pod."""
    found = _SYSTEMD.fullmatch(path) or _CGROUPFS.fullmatch(path)
    if found is None:
        return None
    pod_path, quality, uid, container = found.groups()
    return KubeletGroup(pod_path, uid.replace("_", "-"), container, quality or "guaranteed")
