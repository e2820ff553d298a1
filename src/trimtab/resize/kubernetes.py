"""Kubernetes: which pods run on this node, so that a kubelet's groups have a namespace and labels.

The API server is asked by the official client: one list, then a watch that goes on from its version. Pods are
remembered while the server cannot be reached, so what is managed stays so.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from trimtab.engines import ObjectWatch, core_api
from trimtab.kernel import Hierarchy
from trimtab.resize.discovery import Discovery
from trimtab.resize.kubelet import KUBELET_ROOTS, kubelet_group
from trimtab.resize.pool import Container, Pool

_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_HASH = "kubernetes.io/config.hash"  # the uid in the groups of pods that come from a file on the node
_MEANWHILE = "pods known so far stay managed, new ones are not noticed"


@dataclass(frozen=True, slots=True)
class Pod:
    """What is needed of a pod; `containers` are names by id."""

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
        """Raises `KubernetesError` where the server does not let us in; later it is asked again and again."""
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
        """What is known of a group that a kubelet made; None for others."""
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
            return discovery(told_anew=before != seen)

        yield find


def _read(told: Mapping[str, Any]) -> dict[str, Pod]:
    """The pod under each uid that its groups may have."""
    return dict.fromkeys(_uids(told), _pod(told))


def _uids(told: Mapping[str, Any]) -> list[str]:
    metadata = told["metadata"]
    more = (metadata.get("annotations") or {}).get(_HASH)
    return [metadata["uid"], *([more] if more else [])]


def _pod(told: Mapping[str, Any]) -> Pod:
    """Container ids are in the status, "containerd://0123abcd"."""
    metadata, status = told["metadata"], told.get("status") or {}
    containers = {
        each["containerID"].rpartition("/")[2]: each["name"]
        for kind in _STATUSES
        for each in status.get(kind) or ()
        if each.get("containerID")
    }
    return Pod(metadata["name"], metadata["namespace"], metadata.get("labels") or {}, containers)
