"""Kubernetes: pods of this node with their namespace and labels, and resizing pods through the API server.

The official client asks the API server: one list, then a watch that goes on from its version. Pods are
remembered while the server cannot be reached, so what is managed stays so. `resize_pod` patches the
subresource `pods/resize`: the kubelet then sets on its node what the agent sets in control groups. It takes
longer, and the scheduler knows of it: the way for lasting changes.
"""

import contextlib
import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from trimtab.core import BadInputError, Clock, NotFoundError, RealClock, TrimtabError
from trimtab.engines import KubernetesError, ObjectWatch, called, core_api
from trimtab.kernel import Hierarchy
from trimtab.resize.above import KUBELET_ROOTS, kubelet_group
from trimtab.resize.discovery import Discovery
from trimtab.resize.pool import Container, Pool

_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_HASH = "kubernetes.io/config.hash"  # the uid in the groups of pods that come from a file on the node
_MEANWHILE = "pods known so far stay managed, new ones are not noticed"
_PATCH = "application/strategic-merge-patch+json"  # merges the list of containers by their names
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 1.0  # s before the next try, doubled each time
_LOOK = 0.25  # s between two looks at what became of it


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; `containers` are names by container id."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    containers: Mapping[str, str]


class PodWatch:
    """Pods of one node by the uid that their groups have, in some namespaces or, without any, in all."""

    def __init__(self, api: Any, node: str, namespaces: Sequence[str] = ()) -> None:
        questions: list[tuple[Any, ...]] = [(api.list_namespaced_pod, each) for each in namespaces]
        self._watches = [
            ObjectWatch(*each, read=_read, meanwhile=_MEANWHILE, field_selector=f"spec.nodeName={node}")
            for each in questions or [(api.list_pod_for_all_namespaces,)]
        ]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Raises `KubernetesError` where the server does not let us in; later it retries."""
        with contextlib.ExitStack() as stack:
            for watch in self._watches:
                stack.enter_context(watch)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def changes(self) -> int:
        """Grows whenever something else is known."""
        return sum(watch.changes for watch in self._watches)

    def pod(self, uid: str) -> Pod | None:
        """The pod of that uid, if it runs here."""
        return next((watch.objects[uid] for watch in self._watches if uid in watch.objects), None)

    def describe(self, path: str) -> Container | None:
        """The container of a group that a kubelet made; None for other groups."""
        group = kubelet_group(path)
        pod = self.pod(group.pod_uid) if group else None
        if group is None or pod is None:
            return None
        names = {
            "io.kubernetes.pod.name": pod.name,
            "io.kubernetes.container.name": pod.containers.get(group.container_id, ""),
        }
        return Container(path, {**pod.labels, **names}, pod.namespace)


@contextlib.contextmanager
def kubernetes_find(
    hierarchy: Hierarchy, pools: Sequence[Pool], node: str | None = None, api: Any = None
) -> Iterator[Callable[[], Sequence[Container]]]:
    """Finds the pools' containers, with what the API server says about those of pods on this node.

    The node's name in Kubernetes is in NODE_NAME, or that of the machine, if it is not given.
    """
    selectors = [selector for pool in pools for selector in pool.select]
    namespaces = {each.namespace for each in selectors if each.labels or each.namespace}
    name = node or os.environ.get("NODE_NAME") or socket.gethostname()
    with contextlib.ExitStack() as stack:
        pods = stack.enter_context(
            PodWatch(api or core_api(), name, [] if "" in namespaces else sorted(namespaces))
        )
        discovery = stack.enter_context(
            Discovery(hierarchy, pools, also_below=KUBELET_ROOTS, describe=pods.describe)
        )
        seen = 0

        def find() -> Sequence[Container]:
            nonlocal seen
            before, seen = seen, pods.changes
            return discovery(descriptions_changed=before != seen)

        yield find


def _read(data: Mapping[str, Any]) -> dict[str, Pod]:
    """The pod under each uid that its groups may have."""
    return dict.fromkeys(_uids(data), _pod(data))


def _uids(data: Mapping[str, Any]) -> list[str]:
    metadata = data["metadata"]
    more = (metadata.get("annotations") or {}).get(_HASH)
    return [metadata["uid"], *([more] if more else [])]


def _pod(data: Mapping[str, Any]) -> Pod:
    """Container ids are in the status, "containerd://0123abcd"."""
    metadata, status = data["metadata"], data.get("status") or {}
    containers = {
        each["containerID"].rpartition("/")[2]: each["name"]
        for kind in _STATUSES
        for each in status.get(kind) or ()
        if each.get("containerID")
    }
    return Pod(metadata["name"], metadata["namespace"], metadata.get("labels") or {}, containers)


@dataclass(frozen=True, slots=True)
class ContainerSize:
    """Requests and limits of a container of a pod: CPUs and bytes; None leaves one as it is."""

    cpu_request: float | None = None
    cpu_limit: float | None = None
    memory_request: float | None = None
    memory_limit: float | None = None

    def resources(self) -> dict[str, dict[str, str]]:
        """As a pod's specification has it, in Kubernetes' quantities: thousandths of a CPU, and bytes."""
        given = {
            "requests": {"cpu": self.cpu_request, "memory": self.memory_request},
            "limits": {"cpu": self.cpu_limit, "memory": self.memory_limit},
        }
        for name in ("cpu", "memory"):
            least, most = given["requests"][name], given["limits"][name]
            if any(value is not None and not 0 < value < math.inf for value in (least, most)):
                raise BadInputError(f"a request or limit of {name} must be above zero")
            if least is not None and most is not None and least > most:
                raise BadInputError(f"the request of {name} is above its limit")
        written = {
            kind: {name: _quantity(name, value) for name, value in values.items() if value is not None}
            for kind, values in given.items()
        }
        return {kind: values for kind, values in written.items() if values}


@dataclass(frozen=True, slots=True)
class Resized:
    """State of a resize: "done", "in progress", "deferred" (no room now), "infeasible" (never); and why."""

    state: str
    reason: str = ""


def resize_pod(
    namespace: str,
    pod: str,
    sizes: Mapping[str, ContainerSize],
    wait: float = 0.0,
    api: Any = None,
    clock: Clock | None = None,
) -> Resized:
    """Give containers of a pod, by name, other sizes; what became of it after at most `wait` seconds."""
    containers = [{"name": name, "resources": size.resources()} for name, size in sizes.items()]
    if not all(container["resources"] for container in containers) or not containers:
        raise BadInputError(f"nothing is asked for a container of the pod {pod}; name a request or a limit")
    api, clock = api or core_api(), clock or RealClock()
    data = _patched(api, namespace, pod, {"spec": {"containers": containers}}, clock)
    until = clock.monotonic() + wait
    while (found := became(data, sizes)).state in ("in progress", "deferred") and clock.monotonic() < until:
        clock.sleep(_LOOK)
        data = called(api.read_namespaced_pod, pod, namespace)
    return found


def became(data: Mapping[str, Any], sizes: Mapping[str, ContainerSize]) -> Resized:
    """By a pod's conditions `PodResizePending` and `PodResizeInProgress`, before 1.33 by `status.resize`.

    Without any it is done when the kubelet reports what was asked for, and not noticed yet before.
    """
    status = data.get("status") or {}
    holds = {each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"}
    pending, going = holds.get("PodResizePending"), holds.get("PodResizeInProgress")
    if pending is not None:
        return Resized(str(pending.get("reason", "Deferred")).lower(), str(pending.get("message", "")))
    if going is not None:
        return Resized("in progress", str(going.get("message", "")))
    before = status.get("resize") or ""
    if before:
        return Resized(before.lower() if before in ("Deferred", "Infeasible") else "in progress")
    actual = {each["name"]: each.get("resources") or {} for each in status.get("containerStatuses") or ()}
    same = all(_has(actual.get(name, {}), size) for name, size in sizes.items())
    return Resized("done") if same else Resized("in progress", "the kubelet has not reported it yet")


def _patched(api: Any, namespace: str, pod: str, body: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """The pod as it is then. Who lost a race against another change tries again, a few times."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return called(api.patch_namespaced_pod_resize, pod, namespace, body, _content_type=_PATCH)
        except KubernetesError as error:
            if error.status != 409 or pause > _LAST_PAUSE:
                raise _sentence(error, namespace, pod) from None
        clock.sleep(pause)
        pause *= 2


def _sentence(error: KubernetesError, namespace: str, pod: str) -> TrimtabError:
    where = f"the pod {pod} in {namespace}"
    if error.status == 403:
        return TrimtabError(f"{where} may not be resized: {error.message}; it takes patch on pods/resize")
    if error.status == 404 and "requested resource" in error.message:
        return TrimtabError(f"this cluster cannot resize {where} in place; that takes Kubernetes 1.33")
    if error.status == 404:
        return NotFoundError(f"there is no pod {pod} in {namespace}")
    if error.status == 409:
        return TrimtabError(f"{where} is changed by somebody else all the time; try again later")
    if error.status in (400, 422):
        return BadInputError(f"{where} cannot be resized so: {error.message}")
    return error


def _quantity(name: str, value: float) -> str:
    return f"{math.ceil(round(value * 1000, 6))}m" if name == "cpu" else str(math.ceil(value))


def _has(actual: Mapping[str, Any], size: ContainerSize) -> bool:
    from kubernetes.utils.quantity import parse_quantity

    return all(
        parse_quantity((actual.get(kind) or {}).get(name, "0")) == parse_quantity(value)
        for kind, values in size.resources().items()
        for name, value in values.items()
    )
