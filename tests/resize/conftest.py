"""A small Kubernetes API server, as far as pods go: lists, watches and the resize subresource over HTTP."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from small_api import SmallHandler, SmallServer

_PATH = re.compile(r"/api/v1(?:/namespaces/([^/]+))?/pods(?:/([^/]+))?(/resize)?")


class ApiServer(SmallServer):
    """Pods by namespace and name."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.refusals: list[tuple[int, str]] = []  # answers to the next requests
        self.requests: list[str] = []

    def put(self, name: str, uid: str, namespace: str = "web", node: str = "here", **more: Any) -> None:
        """A pod is made, or is another one now."""
        labels, ids = more.get("labels", {}), more.get("ids", {})
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels},
            "spec": {
                "nodeName": node,
                "containers": [{"name": each, "image": "shop", "resources": {}} for each in ids or ["main"]],
            },
            "status": {
                "containerStatuses": [
                    {
                        "name": each,
                        "containerID": f"containerd://{identity}",
                        "image": "shop",
                        "imageID": "shop",
                        "ready": True,
                        "restartCount": 0,
                    }
                    for each, identity in ids.items()
                ]
            },
        }
        with self.changed:
            event = "MODIFIED" if (namespace, name) in self.pods else "ADDED"
            self.pods[namespace, name] = pod
            self.tell(event, pod)

    def remove(self, name: str, namespace: str = "web") -> None:
        with self.changed:
            self.tell("DELETED", self.pods.pop((namespace, name)))


class _Handler(SmallHandler):
    def do_GET(self) -> None:
        found, query = self._asked()
        if found is None:
            return
        namespace, name, _ = found.groups()
        wanted = dict(pair.split("=") for pair in query.get("fieldSelector", "").split(",") if pair)

        def fits(pod: dict[str, Any]) -> bool:
            here = wanted.get("spec.nodeName", pod["spec"]["nodeName"]) == pod["spec"]["nodeName"]
            return here and namespace in (None, pod["metadata"]["namespace"])

        if name:
            pod = self.api.pods.get((namespace, name))
            self.answer(200, pod) if pod else self.refuse(404, f'pods "{name}" not found')
        elif query.get("watch"):
            self.stream(int(query["resourceVersion"]), fits)
        else:
            self.list("Pod", self.api.pods, fits)

    def do_PATCH(self) -> None:
        patch = self.body()
        found, _ = self._asked()
        if found is None:
            return
        namespace, name, resize = found.groups()
        pod = self.api.pods.get((namespace, name))
        if not resize or self.headers["Content-Type"] != "application/strategic-merge-patch+json":
            self.refuse(415, "the body of the request was in an unknown format")
        elif pod is None:
            self.refuse(404, f'pods "{name}" not found')
        else:
            self._resize(pod, patch)

    def _resize(self, pod: dict[str, Any], patch: dict[str, Any]) -> None:
        there = {container["name"]: container for container in pod["spec"]["containers"]}
        for patched in patch["spec"]["containers"]:
            if patched["name"] not in there:
                self.refuse(422, f'spec.containers: Forbidden: there is no "{patched["name"]}"')
                return
            resources = there[patched["name"]]["resources"]
            for kind, values in patched["resources"].items():
                resources[kind] = resources.get(kind, {}) | values
        self.api.tell("MODIFIED", pod)
        self.answer(200, pod)

    def _asked(self) -> tuple[re.Match[str] | None, dict[str, str]]:
        """What is asked for, unless the request is to be refused."""
        self.api.requests.append(self.path)
        parts = urlsplit(self.path)
        found = _PATH.fullmatch(parts.path)
        if self.api.refusals:
            self.refuse(*self.api.refusals.pop(0))
            return None, {}
        if found is None:
            self.refuse(404, "the server could not find the requested resource")
        return found, {name: values[0] for name, values in parse_qs(parts.query).items()}


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    pytest.importorskip("kubernetes", reason="needs kubernetes==37.0.2")
    server = ApiServer()
    yield server
    server.close()


@pytest.fixture
def api(api_server: ApiServer) -> Any:
    """The official client of that server."""
    from kubernetes import client

    return client.CoreV1Api(client.ApiClient(client.Configuration(host=api_server.address)))
