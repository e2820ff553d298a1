"""Kubernetes: which pods run on this node, so that a kubelet's groups have a namespace and labels.

The API server is asked by the official client: one list, then a watch that goes on from its version. Pods are
remembered while the server cannot be reached, so what is managed stays so.
"""

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError
from trimtab.kernel import Hierarchy
from trimtab.resize.discovery import Discovery
from trimtab.resize.kubelet import KUBELET_ROOTS, kubelet_group
from trimtab.resize.pool import Container, Pool

log = logging.getLogger(__name__)

_TIMEOUT = 10.0  # s for an answer
_WATCH = 300  # s after which the server ends a watch, and another one begins
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0  # s before the server is asked again
_GONE = 410  # the version to go on from is too old
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_HASH = "kubernetes.io/config.hash"  # the uid in the groups of pods that come from a file on the node


class KubernetesError(TrimtabError):
    """The API server refuses, or does not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(
            f"the Kubernetes API answers {status}: {message}"
            if status
            else f"the Kubernetes API does not answer: {message}"
        )
        self.status = status
        self.message = message


def core_api() -> Any:
    """The client's `CoreV1Api`, by KUBECONFIG or the user's own configuration; in a pod, by its account."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise MissingDependencyError(
            "Kubernetes needs its client: pip install 'trimtab[kubernetes]'"
        ) from None
    configuration = client.Configuration()
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
    try:
        if in_pod:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
    except (config.ConfigException, OSError, ValueError) as error:
        why = next(iter(str(error).splitlines()), "it is damaged")
        raise BadInputError(
            f"no Kubernetes cluster is known here: {why}; name its configuration with KUBECONFIG, or run in "
            "a pod with a service account"
        ) from None
    return client.CoreV1Api(client.ApiClient(configuration))


def called(function: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, Any]:
    """What the server answers, as it wrote it; `KubernetesError` where it refuses or does not answer."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        answer = function(*arguments, **named, _preload_content=False, _request_timeout=_TIMEOUT)
        status, body = answer.status, answer.data
    except ApiException as error:
        status, body = error.status or 0, error.body or error.reason or ""
    except (HTTPError, OSError) as error:
        raise KubernetesError(0, _plain(error)) from None
    try:
        told = json.loads(body)
    except ValueError:
        told = {"message": str(body)[:200]}
    if not 200 <= status < 300 or not isinstance(told, dict):
        raise KubernetesError(status, told.get("message", "") if isinstance(told, dict) else "no object")
    return told


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
        self._api = api
        self._selector = f"spec.nodeName={node}"
        self._pods: dict[str, dict[str, Pod]] = {namespace: {} for namespace in namespaces or [""]}
        self._watches: dict[str, Any] = {}
        self._ended = threading.Event()
        self.changes = 0  # grows whenever something else is known

    def __enter__(self) -> Self:
        """Raises `KubernetesError` where the server does not let us in; later it is asked again and again."""
        for namespace in self._pods:
            version = self._list(namespace)
            threading.Thread(target=self._follow, args=(namespace, version), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        for watch in list(self._watches.values()):
            watch.stop()

    def pod(self, uid: str) -> Pod | None:
        """The pod of that uid, if it runs here."""
        return next((pods[uid] for pods in self._pods.values() if uid in pods), None)

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

    def _list(self, namespace: str) -> str:
        """Take all pods in; the version to go on from."""
        told = called(*self._question(namespace), field_selector=self._selector)
        with _as_documented():
            found = dict[str, Pod]()
            for each in told.get("items") or ():
                found |= dict.fromkeys(_uids(each), _pod(each))
            version = str(told["metadata"]["resourceVersion"])
        self._pods[namespace] = found
        self.changes += 1
        return version

    def _follow(self, namespace: str, version: str | None) -> None:
        """Watch until the end, listing anew whenever it cannot go on from where it was."""
        pause, reachable = _FIRST_PAUSE, True
        while not self._ended.is_set():
            try:
                version = self._watch(namespace, version or self._list(namespace))
                if not reachable:
                    log.warning("the Kubernetes API answers again")
                pause, reachable = _FIRST_PAUSE, True
            except KubernetesError as error:
                version = None
                if error.status != _GONE and not self._ended.is_set():
                    if reachable:
                        log.warning(f"{error}; pods known so far stay managed, new ones are not noticed")
                    pause, reachable = min(2 * pause, _LONGEST_PAUSE), False
            self._ended.wait(pause)

    def _watch(self, namespace: str, version: str) -> str:
        """Take in what changes until the server ends the watch; the version to go on from."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.watch import Watch
        from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

        watch = self._watches[namespace] = Watch(return_type="object")
        function, *arguments = self._question(namespace)
        try:
            for event in watch.stream(
                function,
                *arguments,
                field_selector=self._selector,
                resource_version=version,
                allow_watch_bookmarks=True,
                timeout_seconds=_WATCH,
                _request_timeout=(_TIMEOUT, _WATCH + _TIMEOUT),
            ):
                if self._ended.is_set():
                    break
                if event is not None:
                    self._take_in(namespace, event)
        except ApiException as error:
            raise KubernetesError(error.status or 0, str(error.reason or "")) from None
        except (ProtocolError, ReadTimeoutError):
            pass  # it was cut off in the middle, and can go on from there
        except (HTTPError, OSError) as error:
            raise KubernetesError(0, _plain(error)) from None
        return str(watch.resource_version or version)

    def _take_in(self, namespace: str, event: Mapping[str, Any]) -> None:
        pods = self._pods[namespace]
        with _as_documented():
            kind, told = event["type"], event["raw_object"]
            if kind in ("ADDED", "MODIFIED"):
                self._pods[namespace] = pods | dict.fromkeys(_uids(told), _pod(told))
            elif kind == "DELETED":
                self._pods[namespace] = {uid: pod for uid, pod in pods.items() if uid not in _uids(told)}
        if self._pods[namespace] != pods:
            self.changes += 1

    def _question(self, namespace: str) -> tuple[Any, ...]:
        if namespace:
            return self._api.list_namespaced_pod, namespace
        return (self._api.list_pod_for_all_namespaces,)


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


@contextlib.contextmanager
def _as_documented() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise KubernetesError(0, f"what it sent is no pod ({type(error).__name__} {error})") from None


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


def _plain(error: BaseException) -> str:
    """The last cause, which says what happened without how it was tried."""
    reason = getattr(error, "reason", None)
    return _plain(reason) if isinstance(reason, BaseException) else str(error) or type(error).__name__
