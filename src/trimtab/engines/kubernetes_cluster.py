"""One namespace of a Kubernetes cluster: what an engine asks of it, as plain objects of its API."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.core import TrimtabError, one_line
from trimtab.engines.kubernetes_api import TIMEOUT, KubernetesError, answered, called
from trimtab.engines.kubernetes_objects import CONTAINER, JOB_NAME, MANAGED
from trimtab.engines.kubernetes_pods import rank
from trimtab.engines.kubernetes_watch import ObjectWatch

_PATCH = "application/strategic-merge-patch+json"  # merges the list of containers by their names
_OK, _MISSING, _EXISTS = 200, 404, 409
_OURS = ",".join(f"{name}={value}" for name, value in MANAGED.items())

Told = Mapping[str, Any]


class KubernetesCluster:
    """By the official client; raises `KubernetesError` where the server refuses or does not answer."""

    def __init__(self, client: Any, namespace: str) -> None:
        from kubernetes.client import BatchV1Api, CoreV1Api

        self._core, self._batch = CoreV1Api(client), BatchV1Api(client)
        self._namespace = namespace
        self._followed: ObjectWatch[Told] | None = None

    def nodes(self) -> list[Told]:
        """All there are, ready or not."""
        return list(called(self._core.list_node)["items"])

    def make_job(self, told: Told) -> Told:
        """The Job as it is then: the one of that name, if there is one already."""
        with _passing_over(_EXISTS):
            called(self._batch.create_namespaced_job, self._namespace, told)
        return called(self._batch.read_namespaced_job, told["metadata"]["name"], self._namespace)

    def make_beside(self, told: Told) -> None:
        """A Service or a Secret, unless there is one of that name already."""
        kinds = {
            "Service": self._core.create_namespaced_service,
            "Secret": self._core.create_namespaced_secret,
        }
        with _passing_over(_EXISTS):
            called(kinds[told["kind"]], self._namespace, told)

    def job(self, name: str) -> Told | None:
        """A Job as it is now; None where there is none."""
        with _passing_over(_MISSING):
            return called(self._batch.read_namespaced_job, name, self._namespace)
        return None

    def jobs(self) -> list[Told]:
        """All Jobs of ours as they are now."""
        told = called(self._batch.list_namespaced_job, self._namespace, label_selector=_OURS)
        return list(told["items"])

    def followed_jobs(self) -> Mapping[str, Told]:
        """All Jobs of ours by name, as far as a watch has heard of them; does not wait."""
        if self._followed is None:
            watch: ObjectWatch[Told] = ObjectWatch(
                self._batch.list_namespaced_job,
                self._namespace,
                read=lambda told: {str(told["metadata"]["name"]): told},
                meanwhile="runs there are left as they are",
                label_selector=_OURS,
            )
            self._followed = watch.__enter__()
        if self._followed.away is not None:
            raise self._followed.away
        return self._followed.objects

    def pods(self, job: str) -> list[Told]:
        """A Job's pods by rank."""
        selector = f"{JOB_NAME}={job}"
        told = called(self._core.list_namespaced_pod, self._namespace, label_selector=selector)
        return sorted(told["items"], key=rank)

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
        """What a pod has written, every line after its time; nothing where it has not begun."""
        ask = self._core.read_namespaced_pod_log
        status, text = answered(ask, pod, self._namespace, container=CONTAINER, timestamps=True)
        return text.decode(errors="replace") if status == _OK else ""

    def execute(self, pod: str, command: list[str]) -> None:
        """Run a command in a pod's container, and wait for its end."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import stream

        asked = {"container": CONTAINER, "command": command, "stdout": True, "stderr": True}
        ask = self._core.connect_get_namespaced_pod_exec
        try:
            answer = stream(ask, pod, self._namespace, **asked, _preload_content=False)
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
