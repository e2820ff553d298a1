"""Kubernetes: pods of this node with their namespace and labels, and resizing pods through the API server.

The official client sends one list request, then watches from its version. Pods are kept while the server
cannot be reached, so their containers stay managed. `resize_pod` patches the subresource `pods/resize`: the
kubelet then sets the limits on its node. It takes longer than the agent, and the scheduler takes it into
account: use it for lasting changes.
"""

import contextlib
import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from trimtab.core import BadInputError, Clock, NotFoundError, RealClock, TrimtabError
from trimtab.engines import KubernetesError, ObjectWatch, call_api, core_api
from trimtab.kernel import Hierarchy
from trimtab.resize.above import KUBELET_ROOTS, kubelet_group
from trimtab.resize.discovery import Discovery
from trimtab.resize.pool import Container, Pool

_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_HASH = "kubernetes.io/config.hash"  # the uid in the groups of static pods
_MEANWHILE = "known pods stay managed, new ones are not noticed"
_PATCH = "application/strategic-merge-patch+json"  # merges the list of containers by their names
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 1.0  # s before the next try, doubled each time
_LOOK = 0.25  # s between two reads of its state


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
        requests: list[tuple[Any, ...]] = [(api.list_namespaced_pod, namespace) for namespace in namespaces]
        self._watches = [
            ObjectWatch(*request, read=_read, meanwhile=_MEANWHILE, field_selector=f"spec.nodeName={node}")
            for request in requests or [(api.list_pod_for_all_namespaces,)]
        ]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Raises `KubernetesError` where the server refuses; later it retries."""
        with contextlib.ExitStack() as stack:
            for watch in self._watches:
                stack.enter_context(watch)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def changes(self) -> int:
        """Grows whenever a pod changes."""
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
    """Finds the pools' containers, with labels and namespaces of pods on this node from the API server.

    The node's name in Kubernetes is by default NODE_NAME, else the machine's name.
    """
    selectors = [selector for pool in pools for selector in pool.select]
    namespaces = {selector.namespace for selector in selectors if selector.labels or selector.namespace}
    name = node or os.environ.get("NODE_NAME") or socket.gethostname()
    with contextlib.ExitStack() as stack:
        pods = stack.enter_context(
            PodWatch(api or core_api(), name, [] if "" in namespaces else sorted(namespaces))
        )
        discovery = stack.enter_context(
            Discovery(hierarchy, pools, also_below=KUBELET_ROOTS, describe=pods.describe)
        )
        changes = 0

        def find() -> Sequence[Container]:
            nonlocal changes
            before, changes = changes, pods.changes
            return discovery(descriptions_changed=before != changes)

        yield find


def _read(data: Mapping[str, Any]) -> dict[str, Pod]:
    """The pod under each uid that its groups may have; a container id is "containerd://0123abcd"."""
    metadata, status = data["metadata"], data.get("status") or {}
    containers = {
        container["containerID"].rpartition("/")[2]: container["name"]
        for kind in _STATUSES
        for container in status.get(kind) or ()
        if container.get("containerID")
    }
    pod = Pod(metadata["name"], metadata["namespace"], metadata.get("labels") or {}, containers)
    static = (metadata.get("annotations") or {}).get(_HASH)
    return dict.fromkeys([metadata["uid"], *([static] if static else [])], pod)


@dataclass(frozen=True, slots=True)
class ContainerSize:
    """Requests and limits of a container of a pod: CPUs and bytes; None leaves one as it is."""

    cpu_request: float | None = None
    cpu_limit: float | None = None
    memory_request: float | None = None
    memory_limit: float | None = None

    def resources(self) -> dict[str, dict[str, str]]:
        """The part of a pod's specification, in Kubernetes' quantities: thousandths of a CPU, and bytes."""
        sizes = {
            "requests": {"cpu": self.cpu_request, "memory": self.memory_request},
            "limits": {"cpu": self.cpu_limit, "memory": self.memory_limit},
        }
        for name in ("cpu", "memory"):
            least, most = sizes["requests"][name], sizes["limits"][name]
            if any(value is not None and not 0 < value < math.inf for value in (least, most)):
                raise BadInputError(f"a {name} request or limit must be above zero")
            if least is not None and most is not None and least > most:
                raise BadInputError(f"the {name} request {least:g} is above the limit {most:g}")
        written = {
            kind: {name: _quantity(name, value) for name, value in values.items() if value is not None}
            for kind, values in sizes.items()
        }
        return {kind: values for kind, values in written.items() if values}


@dataclass(frozen=True, slots=True)
class Resized:
    """State of a resize: "done", "in progress", "deferred" (no room now) or "infeasible"; and the reason."""

    state: str
    reason: str = ""

    @property
    def is_pending(self) -> bool:
        return self.state in ("in progress", "deferred")


def resize_pod(
    namespace: str,
    pod: str,
    sizes: Mapping[str, ContainerSize],
    wait: float = 0.0,
    api: Any = None,
    clock: Clock | None = None,
) -> Resized:
    """Resize containers of a pod, by name; its state after at most `wait` seconds."""
    containers = [{"name": name, "resources": size.resources()} for name, size in sizes.items()]
    if not all(container["resources"] for container in containers) or not containers:
        raise BadInputError(f"a container of the pod {pod} has no new size; name a request or a limit")
    api, clock = api or core_api(), clock or RealClock()
    data = _patched(api, namespace, pod, {"spec": {"containers": containers}}, clock)
    until = clock.monotonic() + wait
    while (resized := resize_state(data, sizes)).is_pending and clock.monotonic() < until:
        clock.sleep(_LOOK)
        data = call_api(api.read_namespaced_pod, pod, namespace)
    return resized


def resize_state(data: Mapping[str, Any], sizes: Mapping[str, ContainerSize]) -> Resized:
    """State by the conditions `PodResizePending` and `PodResizeInProgress`, before 1.33 by `status.resize`.

    Without any it is done once the kubelet reports the new sizes.
    """
    status = data.get("status") or {}
    conditions = status.get("conditions") or ()
    true = {condition["type"]: condition for condition in conditions if condition.get("status") == "True"}
    if (pending := true.get("PodResizePending")) is not None:
        return Resized(str(pending.get("reason", "Deferred")).lower(), str(pending.get("message", "")))
    if (running := true.get("PodResizeInProgress")) is not None:
        return Resized("in progress", str(running.get("message", "")))
    before = status.get("resize") or ""
    if before:
        return Resized(before.lower() if before in ("Deferred", "Infeasible") else "in progress")
    containers = status.get("containerStatuses") or ()
    actual = {container["name"]: container.get("resources") or {} for container in containers}
    same = all(_has(actual.get(name, {}), size) for name, size in sizes.items())
    return Resized("done") if same else Resized("in progress", "the kubelet has not reported it yet")


def _patched(api: Any, namespace: str, pod: str, body: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """The patched pod. A conflict with another change is retried a few times."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return call_api(api.patch_namespaced_pod_resize, pod, namespace, body, _content_type=_PATCH)
        except KubernetesError as error:
            if error.status != 409 or pause > _LAST_PAUSE:
                raise _as_error(error, namespace, pod) from None
        clock.sleep(pause)
        pause *= 2


def _as_error(error: KubernetesError, namespace: str, pod: str) -> TrimtabError:
    name = f"the pod {pod} in {namespace}"
    if error.status == 403:
        return TrimtabError(f"{name} may not be resized: {error.message}; allow patch on pods/resize")
    if error.status == 404 and "requested resource" in error.message:
        return TrimtabError(f"this cluster cannot resize {name} in place; that takes Kubernetes 1.33")
    if error.status == 404:
        return NotFoundError(f"there is no pod {pod} in {namespace}")
    if error.status == 409:
        return TrimtabError(f"{name} keeps being changed by other clients; try again later")
    if error.status in (400, 422):
        return BadInputError(f"{name} cannot be resized: {error.message}")
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
