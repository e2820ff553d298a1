"""One namespace of a Kubernetes cluster: objects of a run, calls that make or delete them, pods' states."""

import contextlib
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trimtab.core import Launch, Node, TrimtabError, one_line
from trimtab.engines.jobfiles.kubernetes import DEVICE_RESOURCES, unexpanded
from trimtab.engines.jobfiles.script import RENDEZVOUS_PORT
from trimtab.engines.kubernetes.api import TIMEOUT, KubernetesError, ObjectWatch, answered, called

MANAGED = {"app.kubernetes.io/managed-by": "trimtab"}
"""The label on every object of ours."""

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
    accelerators are asked for by.
    """

    name: str
    launch: Launch
    image: str
    hosts: tuple[str, ...]
    device: str


def job_object(wanted: RunObjects) -> dict[str, Any]:
    """One pod per worker, on the nodes named; when one fails, Kubernetes ends the others."""
    launch = wanted.launch
    spec = {
        "completionMode": "Indexed",
        "completions": launch.workers,
        "parallelism": launch.workers,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_LOST_NODE]},
        "ttlSecondsAfterFinished": _WEEK,
        "template": {"metadata": {"labels": dict(MANAGED)}, "spec": _pod(wanted)},
    }
    metadata = {
        "name": wanted.name,
        "labels": dict(MANAGED),
        "annotations": {"trimtab/key": launch.key, "trimtab/workload": launch.workload.name},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def service_object(wanted: RunObjects, owner: Mapping[str, Any]) -> dict[str, Any]:
    """By which the first worker has a name; goes when the Job does."""
    spec = {
        "clusterIP": "None",
        "selector": {JOB_NAME: wanted.name},
        "publishNotReadyAddresses": True,  # workers look for the first one before anything is ready
        "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _owned(wanted.name, owner), "spec": spec}


def secret_object(wanted: RunObjects, owner: Mapping[str, Any]) -> dict[str, Any]:
    """The environment, in which people put secrets; goes when the Job does."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _owned(wanted.name, owner),
        "stringData": dict(wanted.launch.environment),
    }


def quantities(cpus: float | None, memory: float | None) -> dict[str, str]:
    """Quantities: thousandths of a CPU, and bytes. What is None or nothing is left out."""
    found = {}
    if cpus:
        found["cpu"] = f"{math.ceil(round(cpus * 1000, 6))}m"
    if memory:
        found["memory"] = str(math.ceil(memory))
    return found


def _pod(wanted: RunObjects) -> dict[str, Any]:
    launch = wanted.launch
    hosts = {"key": HOST_LABEL, "operator": "In", "values": list(wanted.hosts)}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "subdomain": wanted.name,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [hosts]}]
                }
            }
        },
        "containers": [_container(wanted)],
    }
    if len(launch.parts) > 1:
        spec["topologySpreadConstraints"] = [_spread(wanted)]
    if wanted.device:
        spec["tolerations"] = [{"key": wanted.device, "operator": "Exists", "effect": "NoSchedule"}]
    if launch.memory:
        # Data loader workers hand batches over in /dev/shm, of which a container gets 64 MiB.
        shared = {"medium": "Memory", "sizeLimit": str(int(launch.memory // 2))}
        spec["volumes"] = [{"name": "shared-memory", "emptyDir": shared}]
    return spec


def _spread(wanted: RunObjects) -> dict[str, Any]:
    """As far as Kubernetes can say how many are on each node: by how much two of them may differ."""
    counts = [count for _, count in wanted.launch.parts]
    return {
        "maxSkew": max(1, max(counts) - min(counts)),
        "topologyKey": HOST_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": len(counts),
        "labelSelector": {"matchLabels": {JOB_NAME: wanted.name}},
    }


def _container(wanted: RunObjects) -> dict[str, Any]:
    launch = wanted.launch
    limits = quantities(launch.cpus, launch.memory)
    if wanted.device:
        limits[wanted.device] = str(int(launch.gpus))
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    variables = {
        "WORLD_SIZE": str(launch.workers),
        "LOCAL_RANK": "0",  # a pod sees its own devices only
        "MASTER_ADDR": f"{wanted.name}-0.{wanted.name}",
        "MASTER_PORT": str(RENDEZVOUS_PORT),
    }
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": wanted.image,
        "command": [unexpanded(word) for word in launch.workload.command],
        "env": [
            {"name": "RANK", "valueFrom": rank},
            *({"name": name, "value": value} for name, value in variables.items()),
        ],
        "resources": {"requests": dict(limits), "limits": limits},
    }
    if launch.environment:
        container["envFrom"] = [{"secretRef": {"name": wanted.name}}]
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
    """When the last of them began; None before that."""
    times = []
    for pod in pods:
        state = _state(pod)
        start = (state.get("running") or state.get("terminated") or {}).get("startedAt")
        if start is None:
            return None
        times.append(epoch_seconds(start))
    return max(times, default=None)


def first_failure(pods: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """ "lost" or "failed", and why: of the first pod that did not end well; nothing where there is none."""
    found = []
    for pod in pods:
        end = _state(pod).get("terminated") or {}
        if _disrupted(pod):
            words = f"worker {rank_of(pod)} was taken from its node: {_why(pod)}"
            found.append((epoch_seconds(end["finishedAt"]) if end.get("finishedAt") else 0.0, "lost", words))
        elif end.get("exitCode"):
            words = f"status {end['exitCode']} of worker {rank_of(pod)}"
            if end.get("reason") == _OUT_OF_MEMORY:
                words += ", out of memory"
            found.append((epoch_seconds(end["finishedAt"]), "failed", words))
    return min(found)[1:] if found else ("", "")


def merged_logs(logs: Iterable[str]) -> str:
    """Logs whose lines begin with the time they were written, as one in order of time, without it."""

    def lines(text: str) -> Iterator[tuple[str, str]]:
        for line in text.splitlines(keepends=True):
            when, _, words = line.partition(" ")
            yield when, words

    return "".join(words for _, words in heapq.merge(*map(lines, logs), key=lambda each: each[0]))


def node_of(api_object: Mapping[str, Any]) -> Node | None:
    """A node as we speak of it; None where it is not ready, or takes no pods."""
    conditions = {each["type"]: each["status"] for each in api_object["status"].get("conditions") or ()}
    if conditions.get("Ready") != "True" or api_object["spec"].get("unschedulable"):
        return None
    labels, has = api_object["metadata"].get("labels") or {}, api_object["status"]["allocatable"]
    device = device_of(api_object)
    kinds = (labels[label] for label in _KIND_LABELS if label in labels)
    return Node(
        api_object["metadata"]["name"],
        cpus=_quantity(has["cpu"]),
        memory=_quantity(has["memory"]),
        accelerator=next(kinds, device.partition("/")[0]) if device else "",
        gpus=int(_quantity(has[device])) if device else 0,
        zone=labels.get(_ZONE_LABEL, ""),
    )


def device_of(api_object: Mapping[str, Any]) -> str:
    """The resource by which a node's accelerators are asked for; nothing where it has none."""
    has = api_object["status"]["allocatable"]
    return next((name for name in DEVICE_RESOURCES.values() if _quantity(has.get(name, "0")) > 0), "")


def _quantity(text: str) -> float:
    from kubernetes.utils.quantity import parse_quantity

    return float(parse_quantity(text))


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    found: Mapping[str, Any] = next((each["state"] for each in statuses if each["name"] == CONTAINER), {})
    return found


def _disrupted(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions)


def _why(pod: Mapping[str, Any]) -> str:
    conditions = pod["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == "DisruptionTarget")
    return str(found.get("message") or found.get("reason") or "nobody says why")


_PATCH = "application/strategic-merge-patch+json"  # merges the list of containers by their names
_OK, _MISSING, _EXISTS = 200, 404, 409
_OURS = ",".join(f"{name}={value}" for name, value in MANAGED.items())

ApiObject = Mapping[str, Any]


class KubernetesCluster:
    """By the official client; raises `KubernetesError` where the server refuses or does not answer."""

    def __init__(self, client: Any, namespace: str) -> None:
        from kubernetes.client import BatchV1Api, CoreV1Api

        self._core, self._batch = CoreV1Api(client), BatchV1Api(client)
        self._namespace = namespace
        self._followed: ObjectWatch[ApiObject] | None = None

    def nodes(self) -> list[ApiObject]:
        """All there are, ready or not."""
        return list(called(self._core.list_node)["items"])

    def make_job(self, api_object: ApiObject) -> ApiObject:
        """The Job as it is then: the one of that name, if there is one already."""
        with _passing_over(_EXISTS):
            called(self._batch.create_namespaced_job, self._namespace, api_object)
        return called(self._batch.read_namespaced_job, api_object["metadata"]["name"], self._namespace)

    def make_dependent(self, api_object: ApiObject) -> None:
        """A Service or a Secret, unless there is one of that name already."""
        kinds = {
            "Service": self._core.create_namespaced_service,
            "Secret": self._core.create_namespaced_secret,
        }
        with _passing_over(_EXISTS):
            called(kinds[api_object["kind"]], self._namespace, api_object)

    def job(self, name: str) -> ApiObject | None:
        """A Job as it is now; None where there is none."""
        with _passing_over(_MISSING):
            return called(self._batch.read_namespaced_job, name, self._namespace)
        return None

    def jobs(self) -> list[ApiObject]:
        """All Jobs of ours as they are now."""
        api_object = called(self._batch.list_namespaced_job, self._namespace, label_selector=_OURS)
        return list(api_object["items"])

    def followed_jobs(self) -> Mapping[str, ApiObject]:
        """All Jobs of ours by name, as far as a watch has heard of them; does not wait."""
        if self._followed is None:
            watch: ObjectWatch[ApiObject] = ObjectWatch(
                self._batch.list_namespaced_job,
                self._namespace,
                read=lambda api_object: {str(api_object["metadata"]["name"]): api_object},
                meanwhile="runs there are left as they are",
                label_selector=_OURS,
            )
            self._followed = watch.__enter__()
        if self._followed.away is not None:
            raise self._followed.away
        return self._followed.objects

    def pods(self, job: str) -> list[ApiObject]:
        """A Job's pods by rank."""
        selector = f"{JOB_NAME}={job}"
        api_object = called(self._core.list_namespaced_pod, self._namespace, label_selector=selector)
        return sorted(api_object["items"], key=rank_of)

    def delete(self, job: str, grace: float) -> None:
        """A Job with all that belongs to it; its pods are killed after `grace` seconds."""
        with _passing_over(_MISSING):
            body = {"propagationPolicy": "Foreground"}
            called(self._batch.delete_namespaced_job, job, self._namespace, body=body)
        for pod in self.pods(job):
            with _passing_over(_MISSING):
                name, soon = pod["metadata"]["name"], {"gracePeriodSeconds": math.ceil(grace)}
                called(self._core.delete_namespaced_pod, name, self._namespace, body=soon)

    def resize(self, pod: str, resources: Mapping[str, str]) -> None:
        """Give a pod that runs other requests and limits."""
        container = {"name": CONTAINER, "resources": {"requests": resources, "limits": resources}}
        body = {"spec": {"containers": [container]}}
        called(self._core.patch_namespaced_pod_resize, pod, self._namespace, body, _content_type=_PATCH)

    def log(self, pod: str) -> str:
        """The log of a pod, each line after its timestamp; empty if the pod has not started."""
        ask = self._core.read_namespaced_pod_log
        status, text = answered(ask, pod, self._namespace, container=CONTAINER, timestamps=True)
        return text.decode(errors="replace") if status == _OK else ""

    def execute(self, pod: str, command: list[str]) -> None:
        """Run a command in a pod's container, and wait for its end."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import stream

        options = {"container": CONTAINER, "command": command, "stdout": True, "stderr": True}
        ask = self._core.connect_get_namespaced_pod_exec
        try:
            answer = stream(ask, pod, self._namespace, **options, _preload_content=False)
            answer.run_forever(timeout=TIMEOUT)
        except ApiException as error:
            raise KubernetesError(error.status or 0, one_line(error.reason or "")) from None
        if answer.returncode:
            words = " ".join(command)
            raise TrimtabError(
                f'the pod {pod} answers {answer.returncode} to "{words}"; its image needs a shell for that'
            )


@contextlib.contextmanager
def _passing_over(status: int) -> Iterator[None]:
    try:
        yield
    except KubernetesError as error:
        if error.status != status:
            raise
