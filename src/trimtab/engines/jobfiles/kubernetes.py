"""A Kubernetes Job, with a headless Service where several nodes must find each other: `kubectl apply -f`."""

import re
from typing import Any

from trimtab.core import BadInputError, Offer
from trimtab.engines.jobfiles.job import (
    JobFile,
    comment,
    default_image,
    is_attached,
    is_tpu_vm,
    machine_type,
    node_label,
    requestable_cpus,
    requestable_memory,
    to_yaml,
    vendor,
)
from trimtab.engines.jobfiles.script import RENDEZVOUS_PORT, Launcher, Rendezvous, launcher, node_script

DEVICE_RESOURCES = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "Google": "google.com/tpu",
    "AWS": "aws.amazon.com/neuron",
    "Intel": "habana.ai/gaudi",
}
"""The resource that each vendor's device plugin offers."""

SPOT_LABELS = {
    "aws": ("eks.amazonaws.com/capacityType", "SPOT"),
    "azure": ("kubernetes.azure.com/scalesetpriority", "spot"),
    "gcp": ("cloud.google.com/gke-spot", "true"),
}
"""The label, and where there is one the taint, on spot nodes of each cloud's own Kubernetes service."""

_SPOT_RETRIES_PER_NODE = 3


def kubernetes_file(job: JobFile) -> str:
    """The manifest as YAML: one Job, and for several nodes a Service after it."""
    nodes, offer = job.configuration.nodes, job.configuration.offer
    if is_tpu_vm(offer):
        raise BadInputError(f"{offer.instance} is no type of Kubernetes node; use the skypilot target")
    if nodes > 1 and launcher(job.workload.command, job.configuration.devices) is Launcher.FIRST_NODE:
        raise BadInputError(
            f"{job.workload.command[0]} reaches other nodes over ssh, which a Kubernetes Job does not offer; "
            "use torchrun, or the slurm or skypilot target"
        )
    notes = [
        f"The image {_image(job)} must hold the code, in its working directory.",
        "It needs nodes of the type named in nodeSelector.",
    ]
    if job.configuration.spot and offer.cloud not in SPOT_LABELS:
        notes.append("Spot nodes of this cloud have no label known here: add yours to nodeSelector.")
    documents = [_job(job), _service(job)] if nodes > 1 else [_job(job)]
    return comment(job.header("kubectl apply -f job.yaml", notes)) + to_yaml(*documents)


def _job(job: JobFile) -> dict[str, Any]:
    nodes, spot = job.configuration.nodes, job.configuration.spot
    # A program that fails by itself would fail again at full price; only a lost spot node is worth a retry.
    spec: dict[str, Any] = {"backoffLimit": _SPOT_RETRIES_PER_NODE * nodes if spot else 0}
    if job.time_limit is not None:
        spec["activeDeadlineSeconds"] = job.time_limit
    if spot:
        lost_node = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        spec["podFailurePolicy"] = {"rules": [lost_node]}
    if nodes > 1:
        spec |= {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes}
    spec["template"] = {"spec": _pod(job)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec}


def _pod(job: JobFile) -> dict[str, Any]:
    offer = job.configuration.offer
    pod: dict[str, Any] = {"restartPolicy": "Never"}
    if job.configuration.nodes > 1:
        pod["subdomain"] = job.name
    pod["nodeSelector"] = _node_selector(offer, job.configuration.spot)
    tolerations = _tolerations(offer, job.configuration.spot)
    if tolerations:
        pod["tolerations"] = tolerations
    # Data loader workers hand batches over in /dev/shm, of which a container gets 64 MiB.
    shared = {"medium": "Memory", "sizeLimit": _mebibytes(requestable_memory(offer) // 2)}
    pod["volumes"] = [{"name": "shared-memory", "emptyDir": shared}]
    pod["containers"] = [_container(job)]
    return pod


def _container(job: JobFile) -> dict[str, Any]:
    offer = job.configuration.offer
    container: dict[str, Any] = {"name": "main", "image": _image(job), "command": ["bash", "-c"]}
    rendezvous = Rendezvous(rank='"$JOB_COMPLETION_INDEX"', address='"$MASTER_ADDR"', port='"$MASTER_PORT"')
    container["args"] = [unexpanded(node_script(job, rendezvous))]
    if job.configuration.nodes > 1:
        # Pod 0 of an Indexed Job has the Job's name and -0 as its host name, within the Service's domain.
        container["env"] = [
            {"name": "MASTER_ADDR", "value": f"{job.name}-0.{job.name}"},
            {"name": "MASTER_PORT", "value": str(RENDEZVOUS_PORT)},
        ]
    requests = {
        "cpu": f"{requestable_cpus(offer):g}",
        "memory": _mebibytes(requestable_memory(offer)),
    }
    container["resources"] = {"requests": requests}
    resource = _device_resource(offer)
    if resource:
        container["resources"]["limits"] = {resource: offer.accelerators}
    mount = {"name": "shared-memory", "mountPath": "/dev/shm"}  # nosec B108 # inside the container
    container["volumeMounts"] = [mount]
    return container


def _service(job: JobFile) -> dict[str, Any]:
    spec = {
        "clusterIP": "None",
        "selector": {"batch.kubernetes.io/job-name": job.name},
        # Workers look for the first node before anything is ready.
        "publishNotReadyAddresses": True,
        "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": job.name}, "spec": spec}


def _node_selector(offer: Offer, spot: bool) -> dict[str, str]:
    selector = {"node.kubernetes.io/instance-type": machine_type(offer)}
    if is_attached(offer):
        selector["cloud.google.com/gke-accelerator"] = node_label(offer)
    if spot and offer.cloud in SPOT_LABELS:
        label, value = SPOT_LABELS[offer.cloud]
        selector[label] = value
    return selector


def _tolerations(offer: Offer, spot: bool) -> list[dict[str, str]]:
    tolerations = []
    resource = _device_resource(offer)
    if resource:
        tolerations.append({"key": resource, "operator": "Exists", "effect": "NoSchedule"})
    if spot and offer.cloud in SPOT_LABELS:
        label, value = SPOT_LABELS[offer.cloud]
        tolerations.append({"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"})
    return tolerations


def _device_resource(offer: Offer) -> str | None:
    maker = vendor(offer)
    if maker is None:
        return None
    if maker not in DEVICE_RESOURCES:
        raise BadInputError(f"no Kubernetes resource is known for {offer.accelerator} by {maker}")
    return DEVICE_RESOURCES[maker]


def _image(job: JobFile) -> str:
    return job.image or default_image(job.configuration.offer)


def _mebibytes(count: int) -> str:
    return f"{count // 2**20}Mi"


def unexpanded(text: str) -> str:
    """Kubernetes replaces $(NAME) and $$ in arguments before the shell sees them; doubling keeps them."""
    return re.sub(r"\$(?=[$(])", "$$", text)
