"""Resize pods through the Kubernetes API, without a restart: the subresource `pods/resize`.

The kubelet then sets on its node what the agent sets in control groups. It takes longer, and the scheduler
knows of it: the way for lasting changes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.core import BadInputError, Clock, NotFoundError, RealClock, TrimtabError
from trimtab.engines import KubernetesError, called, core_api

_PATCH = "application/strategic-merge-patch+json"  # merges the list of containers by their names
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 1.0  # s before the next try, doubled each time
_LOOK = 0.25  # s between two looks at what became of it


@dataclass(frozen=True, slots=True)
class ContainerSize:
    """What a container of a pod shall have: CPUs and bytes; None leaves it as it is."""

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
    """What became of it: "done", "in progress", "deferred" (no room now), "infeasible" (never); and why."""

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
    told = _patched(api, namespace, pod, {"spec": {"containers": containers}}, clock)
    until = clock.monotonic() + wait
    while (found := became(told, sizes)).state in ("in progress", "deferred") and clock.monotonic() < until:
        clock.sleep(_LOOK)
        told = called(api.read_namespaced_pod, pod, namespace)
    return found


def became(told: Mapping[str, Any], sizes: Mapping[str, ContainerSize]) -> Resized:
    """By a pod's conditions `PodResizePending` and `PodResizeInProgress`, before 1.33 by `status.resize`.

    Without any it is done when the kubelet reports what was asked for, and not noticed yet before.
    """
    status = told.get("status") or {}
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
