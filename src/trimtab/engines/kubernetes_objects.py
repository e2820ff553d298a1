"""A run as objects of the Kubernetes API: an Indexed Job, the Service that gives its pods names, a Secret."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.core import Launch
from trimtab.engines.jobfiles.kubernetes import unexpanded
from trimtab.engines.jobfiles.script import RENDEZVOUS_PORT

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
class Wanted:
    """A run under the name of its objects, with the image that holds its code.

    `hosts` are the values of the label `kubernetes.io/hostname` on its nodes, `device` the resource that
    accelerators are asked for by.
    """

    name: str
    launch: Launch
    image: str
    hosts: tuple[str, ...]
    device: str


def job(wanted: Wanted) -> dict[str, Any]:
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


def service(wanted: Wanted, owner: Mapping[str, Any]) -> dict[str, Any]:
    """By which the first worker has a name; goes when the Job does."""
    spec = {
        "clusterIP": "None",
        "selector": {JOB_NAME: wanted.name},
        "publishNotReadyAddresses": True,  # workers look for the first one before anything is ready
        "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _owned(wanted.name, owner), "spec": spec}


def secret(wanted: Wanted, owner: Mapping[str, Any]) -> dict[str, Any]:
    """The environment, in which people put secrets; goes when the Job does."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _owned(wanted.name, owner),
        "stringData": dict(wanted.launch.environment),
    }


def resources(cpus: float | None, memory: float | None) -> dict[str, str]:
    """Quantities: thousandths of a CPU, and bytes. What is None or nothing is left out."""
    found = {}
    if cpus:
        found["cpu"] = f"{math.ceil(round(cpus * 1000, 6))}m"
    if memory:
        found["memory"] = str(math.ceil(memory))
    return found


def _pod(wanted: Wanted) -> dict[str, Any]:
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


def _spread(wanted: Wanted) -> dict[str, Any]:
    """As far as Kubernetes can say how many are on each node: by how much two of them may differ."""
    counts = [count for _, count in wanted.launch.parts]
    return {
        "maxSkew": max(1, max(counts) - min(counts)),
        "topologyKey": HOST_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": len(counts),
        "labelSelector": {"matchLabels": {JOB_NAME: wanted.name}},
    }


def _container(wanted: Wanted) -> dict[str, Any]:
    launch = wanted.launch
    limits = resources(launch.cpus, launch.memory)
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
