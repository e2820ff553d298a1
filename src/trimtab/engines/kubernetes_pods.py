"""What the pods of a run tell: when they began, how the first that failed ended, and what they wrote."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from trimtab.core import Node
from trimtab.engines.jobfiles.kubernetes import DEVICE_RESOURCES
from trimtab.engines.kubernetes_objects import CONTAINER, INDEX

_KIND_LABELS = ("accelerator", "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
_ZONE_LABEL = "topology.kubernetes.io/zone"
_OUT_OF_MEMORY = "OOMKilled"


def rank(pod: Mapping[str, Any]) -> int:
    """Its rank in the gang."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, 0))


def seconds(text: str) -> float:
    """Seconds since the epoch of a time such as 2026-08-22T10:00:00Z."""
    return datetime.fromisoformat(text).timestamp()


def began(pods: Sequence[Mapping[str, Any]]) -> float | None:
    """When the last of them began; None before that."""
    times = []
    for pod in pods:
        state = _state(pod)
        start = (state.get("running") or state.get("terminated") or {}).get("startedAt")
        if start is None:
            return None
        times.append(seconds(start))
    return max(times, default=None)


def failure(pods: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """ "lost" or "failed", and why: of the first pod that did not end well; nothing where there is none."""
    found = []
    for pod in pods:
        end = _state(pod).get("terminated") or {}
        if _disrupted(pod):
            words = f"worker {rank(pod)} was taken from its node: {_why(pod)}"
            found.append((seconds(end["finishedAt"]) if end.get("finishedAt") else 0.0, "lost", words))
        elif end.get("exitCode"):
            words = f"status {end['exitCode']} of worker {rank(pod)}"
            if end.get("reason") == _OUT_OF_MEMORY:
                words += ", out of memory"
            found.append((seconds(end["finishedAt"]), "failed", words))
    return min(found)[1:] if found else ("", "")


def merged(logs: Iterable[str]) -> str:
    """Logs whose lines begin with the time they were written, as one in order of time, without it."""

    def lines(text: str) -> Iterator[tuple[str, str]]:
        for line in text.splitlines(keepends=True):
            when, _, words = line.partition(" ")
            yield when, words

    return "".join(words for _, words in heapq.merge(*map(lines, logs), key=lambda each: each[0]))


def node(told: Mapping[str, Any]) -> Node | None:
    """A node as we speak of it; None where it is not ready, or takes no pods."""
    conditions = {each["type"]: each["status"] for each in told["status"].get("conditions") or ()}
    if conditions.get("Ready") != "True" or told["spec"].get("unschedulable"):
        return None
    labels, has = told["metadata"].get("labels") or {}, told["status"]["allocatable"]
    device = device_of(told)
    kinds = (labels[label] for label in _KIND_LABELS if label in labels)
    return Node(
        told["metadata"]["name"],
        cpus=_quantity(has["cpu"]),
        memory=_quantity(has["memory"]),
        accelerator=next(kinds, device.partition("/")[0]) if device else "",
        gpus=int(_quantity(has[device])) if device else 0,
        zone=labels.get(_ZONE_LABEL, ""),
    )


def device_of(told: Mapping[str, Any]) -> str:
    """The resource by which a node's accelerators are asked for; nothing where it has none."""
    has = told["status"]["allocatable"]
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
