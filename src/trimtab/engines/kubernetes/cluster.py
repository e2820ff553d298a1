"""One namespace of a Kubernetes cluster: objects of a run, calls that make or delete them, pods' states."""

import contextlib
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trimtab.core import Launch, Node, one_line
from trimtab.engines.jobfiles.kubernetes import DEVICE_RESOURCES, unexpanded
from trimtab.engines.jobfiles.script import RENDEZVOUS_PORT
from trimtab.engines.kubernetes.api import TIMEOUT, KubernetesError, ObjectWatch, call_api, raw_answer

MANAGED = {"app.kubernetes.io/managed-by": "trimtab"}
"""The label on every object that Trimtab makes."""

JOB_NAME = "batch.kubernetes.io/job-name"
"""The label by which a Job's pods are found."""

INDEX = "batch.kubernetes.io/job-completion-index"
"""The annotation with a pod's rank."""

HOST_LABEL = "kubernetes.io/hostname"
"""The label that names a node to its scheduler."""

CONTAINER = "main"
"""The name of a pod's only container."""

_WEEK = 7 * 86_400  # s that a Job which has ended stays, for a Trimtab that was away
_LOST_NODE = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@dataclass(frozen=True, slots=True)
class RunObjects:
    """A run under the name of its objects, with the image that holds its code.

    `hosts` are the values of the label `kubernetes.io/hostname` on its nodes, `device` the resource that
    name of its accelerators.
    """

    name: str
    launch: Launch
    image: str
    hosts: tuple[str, ...]
    device: str


def job_object(objects: RunObjects) -> dict[str, Any]:
    """One pod per worker, on the nodes named; when one fails, Kubernetes ends the others."""
    launch = objects.launch
    spec = {
        "completionMode": "Indexed",
        "completions": launch.workers,
        "parallelism": launch.workers,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_LOST_NODE]},
        "ttlSecondsAfterFinished": _WEEK,
        "template": {"metadata": {"labels": dict(MANAGED)}, "spec": _pod(objects)},
    }
    metadata = {
        "name": objects.name,
        "labels": dict(MANAGED),
        "annotations": {"trimtab/key": launch.key, "trimtab/workload": launch.workload.name},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def service_object(objects: RunObjects, owner: Mapping[str, Any]) -> dict[str, Any]:
    """The Service that gives the first worker a DNS name; deleted with the Job."""
    spec = {
        "clusterIP": "None",
        "selector": {JOB_NAME: objects.name},
        "publishNotReadyAddresses": True,  # workers look for the first one before anything is ready
        "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _owned(objects.name, owner), "spec": spec}


def secret_object(objects: RunObjects, owner: Mapping[str, Any]) -> dict[str, Any]:
    """The Secret with the run's environment, in which people put secrets; deleted with the Job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _owned(objects.name, owner),
        "stringData": dict(objects.launch.environment),
    }


def quantities(cpus: float | None, memory: float | None) -> dict[str, str]:
    """Kubernetes quantities: thousandths of a CPU, and bytes; without those that are None or zero."""
    amounts = {}
    if cpus:
        amounts["cpu"] = f"{math.ceil(round(cpus * 1000, 6))}m"
    if memory:
        amounts["memory"] = str(math.ceil(memory))
    return amounts


def _pod(objects: RunObjects) -> dict[str, Any]:
    launch = objects.launch
    hosts = {"key": HOST_LABEL, "operator": "In", "values": list(objects.hosts)}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,  # else a job would have the namespace's rights in the cluster
        "subdomain": objects.name,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [hosts]}]
                }
            }
        },
        "containers": [_container(objects)],
    }
    if len(launch.parts) > 1:
        spec["topologySpreadConstraints"] = [_spread(objects)]
    if objects.device:
        spec["tolerations"] = [{"key": objects.device, "operator": "Exists", "effect": "NoSchedule"}]
    if launch.memory:
        # Data loader workers hand batches over in /dev/shm, of which a container gets 64 MiB.
        shared = {"medium": "Memory", "sizeLimit": str(int(launch.memory // 2))}
        spec["volumes"] = [{"name": "shared-memory", "emptyDir": shared}]
    return spec


def _spread(objects: RunObjects) -> dict[str, Any]:
    """Workers per node, as near as Kubernetes can express it: by how much two nodes may differ."""
    counts = [count for _, count in objects.launch.parts]
    return {
        "maxSkew": max(1, max(counts) - min(counts)),
        "topologyKey": HOST_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": len(counts),
        "labelSelector": {"matchLabels": {JOB_NAME: objects.name}},
    }


def _container(objects: RunObjects) -> dict[str, Any]:
    launch = objects.launch
    limits = quantities(launch.cpus, launch.memory)
    if objects.device:
        limits[objects.device] = str(int(launch.gpus))
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    variables = {
        "WORLD_SIZE": str(launch.workers),
        "LOCAL_RANK": "0",  # a pod sees its own devices only
        "MASTER_ADDR": f"{objects.name}-0.{objects.name}",
        "MASTER_PORT": str(RENDEZVOUS_PORT),
    }
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": objects.image,
        "command": [unexpanded(word) for word in launch.workload.command],
        "env": [
            {"name": "RANK", "valueFrom": rank},
            *({"name": name, "value": value} for name, value in variables.items()),
        ],
        "resources": {"requests": dict(limits), "limits": limits},
    }
    if launch.environment:
        container["envFrom"] = [{"secretRef": {"name": objects.name}}]
    if launch.memory:
        mount = {"name": "shared-memory", "mountPath": "/dev/shm"}  # nosec B108 # inside the container
        container["volumeMounts"] = [mount]
    return container


def _owned(name: str, owner: Mapping[str, Any]) -> dict[str, Any]:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["metadata"]["uid"]}
    return {"name": name, "labels": dict(MANAGED), "ownerReferences": [reference]}


_KIND_LABELS = ("accelerator", "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
_ZONE_LABEL = "topology.kubernetes.io/zone"
_OUT_OF_MEMORY = "OOMKilled"


def rank_of(pod: Mapping[str, Any]) -> int:
    """Its rank in the gang."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, 0))


def epoch_seconds(text: str) -> float:
    """Seconds since the epoch of a time such as 2026-08-22T10:00:00Z."""
    return datetime.fromisoformat(text).timestamp()


def start_time(pods: Sequence[Mapping[str, Any]]) -> float | None:
    """When the last pod started, in seconds since the epoch; None before that."""
    times = []
    for pod in pods:
        state = _state(pod)
        start = (state.get("running") or state.get("terminated") or {}).get("startedAt")
        if start is None:
            return None
        times.append(epoch_seconds(start))
    return max(times, default=None)


def first_failure(pods: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Event ("lost" or "failed") and reason of the first pod that failed; two empty texts if none did."""
    failures = []
    for pod in pods:
        end = _state(pod).get("terminated") or {}
        if _disrupted(pod):
            words = f"worker {rank_of(pod)} was taken from its node: {_why(pod)}"
            failures.append(
                (epoch_seconds(end["finishedAt"]) if end.get("finishedAt") else 0.0, "lost", words)
            )
        elif end.get("exitCode"):
            words = f"status {end['exitCode']} of worker {rank_of(pod)}"
            if end.get("reason") == _OUT_OF_MEMORY:
                words += ", out of memory"
            failures.append((epoch_seconds(end["finishedAt"]), "failed", words))
    return min(failures)[1:] if failures else ("", "")


def merged_logs(logs: Iterable[str]) -> str:
    """One log, in order of time, of logs whose lines begin with a timestamp; timestamps are removed."""

    def lines(text: str) -> Iterator[tuple[str, str]]:
        for line in text.splitlines(keepends=True):
            when, _, words = line.partition(" ")
            yield when, words

    return "".join(words for _, words in heapq.merge(*map(lines, logs), key=lambda item: item[0]))


def node_of(api_object: Mapping[str, Any]) -> Node | None:
    """A `Node` from a node of the API; None if it is not ready, or takes no pods."""
    conditions = {item["type"]: item["status"] for item in api_object["status"].get("conditions") or ()}
    if conditions.get("Ready") != "True" or api_object["spec"].get("unschedulable"):
        return None
    labels, allocatable = api_object["metadata"].get("labels") or {}, api_object["status"]["allocatable"]
    device = device_of(api_object)
    kinds = (labels[label] for label in _KIND_LABELS if label in labels)
    return Node(
        api_object["metadata"]["name"],
        cpus=_quantity(allocatable["cpu"]),
        memory=_quantity(allocatable["memory"]),
        accelerator=next(kinds, device.partition("/")[0]) if device else "",
        gpus=int(_quantity(allocatable[device])) if device else 0,
        zone=labels.get(_ZONE_LABEL, ""),
    )


def device_of(api_object: Mapping[str, Any]) -> str:
    """The resource name of a node's accelerators; empty where it has none."""
    allocatable = api_object["status"]["allocatable"]
    return next((name for name in DEVICE_RESOURCES.values() if _quantity(allocatable.get(name, "0")) > 0), "")


def _quantity(text: str) -> float:
    from kubernetes.utils.quantity import parse_quantity

    return float(parse_quantity(text))


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state: Mapping[str, Any] = next((item["state"] for item in statuses if item["name"] == CONTAINER), {})
    return state


def _disrupted(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "DisruptionTarget" and item["status"] == "True" for item in conditions)


def _why(pod: Mapping[str, Any]) -> str:
    conditions = pod["status"]["conditions"]
    disruption = next(item for item in conditions if item["type"] == "DisruptionTarget")
    return str(disruption.get("message") or disruption.get("reason") or "no reason given")


_PATCH = "application/strategic-merge-patch+json"  # merges the list of containers by their names
_OK, _MISSING, _EXISTS = 200, 404, 409
_MANAGED_SELECTOR = ",".join(f"{name}={value}" for name, value in MANAGED.items())

ApiObject = Mapping[str, Any]


class KubernetesCluster:
    """Calls of the official client; they raise `KubernetesError` if the server refuses or does not answer."""

    def __init__(self, client: Any, namespace: str) -> None:
        from kubernetes.client import BatchV1Api, CoreV1Api

        self._core, self._batch = CoreV1Api(client), BatchV1Api(client)
        self._namespace = namespace
        self._followed: ObjectWatch[ApiObject] | None = None

    def nodes(self) -> list[ApiObject]:
        """All nodes, ready or not."""
        return list(call_api(self._core.list_node)["items"])

    def make_job(self, api_object: ApiObject) -> ApiObject:
        """Create a Job, unless one of that name exists; returns the Job as the server has it."""
        with _ignoring(_EXISTS):
            call_api(self._batch.create_namespaced_job, self._namespace, api_object)
        return call_api(self._batch.read_namespaced_job, api_object["metadata"]["name"], self._namespace)

    def make_dependent(self, api_object: ApiObject) -> None:
        """Create a Service or a Secret, unless one of that name exists."""
        kinds = {
            "Service": self._core.create_namespaced_service,
            "Secret": self._core.create_namespaced_secret,
        }
        with _ignoring(_EXISTS):
            call_api(kinds[api_object["kind"]], self._namespace, api_object)

    def job(self, name: str) -> ApiObject | None:
        """The Job with this name as it is now; None if there is none."""
        with _ignoring(_MISSING):
            return call_api(self._batch.read_namespaced_job, name, self._namespace)
        return None

    def jobs(self) -> list[ApiObject]:
        """All Jobs that Trimtab made, as they are now."""
        api_object = call_api(
            self._batch.list_namespaced_job, self._namespace, label_selector=_MANAGED_SELECTOR
        )
        return list(api_object["items"])

    def followed_jobs(self) -> Mapping[str, ApiObject]:
        """All Jobs that Trimtab made, by name, as the watch knows them; does not block."""
        if self._followed is None:
            watch: ObjectWatch[ApiObject] = ObjectWatch(
                self._batch.list_namespaced_job,
                self._namespace,
                read=lambda api_object: {str(api_object["metadata"]["name"]): api_object},
                meanwhile="runs there are not changed",
                label_selector=_MANAGED_SELECTOR,
            )
            self._followed = watch.__enter__()
        if self._followed.away is not None:
            raise self._followed.away
        return self._followed.objects

    def pods(self, job: str) -> list[ApiObject]:
        """A Job's pods by rank."""
        selector = f"{JOB_NAME}={job}"
        api_object = call_api(self._core.list_namespaced_pod, self._namespace, label_selector=selector)
        return sorted(api_object["items"], key=rank_of)

    def delete(self, job: str, grace: float) -> None:
        """Delete a Job with its objects; its pods are killed after `grace` seconds."""
        with _ignoring(_MISSING):
            body = {"propagationPolicy": "Foreground"}
            call_api(self._batch.delete_namespaced_job, job, self._namespace, body=body)
        for pod in self.pods(job):
            with _ignoring(_MISSING):
                name, soon = pod["metadata"]["name"], {"gracePeriodSeconds": math.ceil(grace)}
                call_api(self._core.delete_namespaced_pod, name, self._namespace, body=soon)

    def resize(self, pod: str, resources: Mapping[str, str]) -> None:
        """Set the requests and limits of a running pod."""
        container = {"name": CONTAINER, "resources": {"requests": resources, "limits": resources}}
        body = {"spec": {"containers": [container]}}
        call_api(self._core.patch_namespaced_pod_resize, pod, self._namespace, body, _content_type=_PATCH)

    def log(self, pod: str) -> str:
        """The log of a pod, each line after its timestamp; empty if the pod has not started."""
        request = self._core.read_namespaced_pod_log
        status, text = raw_answer(request, pod, self._namespace, container=CONTAINER, timestamps=True)
        return text.decode(errors="replace") if status == _OK else ""

    def execute(self, pod: str, command: Sequence[str], timeout: float = TIMEOUT) -> int | None:
        """Run a command in a pod's container; its exit status, or None after `timeout` seconds."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import stream

        options = {"container": CONTAINER, "command": list(command), "stdout": True, "stderr": True}
        request = self._core.connect_get_namespaced_pod_exec
        try:
            answer = stream(request, pod, self._namespace, **options, _preload_content=False)
            answer.run_forever(timeout=timeout)
        except ApiException as error:
            raise KubernetesError(error.status or 0, one_line(error.reason or "")) from None
        if answer.is_open():
            answer.close()
            return None
        status: int | None = answer.returncode
        return status


@contextlib.contextmanager
def _ignoring(status: int) -> Iterator[None]:
    try:
        yield
    except KubernetesError as error:
        if error.status != status:
            raise
