"""A small Kubernetes API server, as far as pods go: lists, watches and the resize subresource over HTTP."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

_PATH = re.compile(r"/api/v1(?:/namespaces/([^/]+))?/pods(?:/([^/]+))?(/resize)?")


class ApiServer:
    """Pods by namespace and name; every change has a version and is told to those who watch."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 100
        self.oldest = 0  # version from which a watch can go on
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.refusals: list[tuple[int, str]] = []  # answers to the next requests
        self.requests: list[str] = []
        self.changed = threading.Condition()
        self.streams: list[socket.socket] = []
        server = self

        class Handler(_Handler):
            api = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

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
        kind = "MODIFIED" if (namespace, name) in self.pods else "ADDED"
        self.pods[namespace, name] = pod
        self.tell(kind, pod)

    def remove(self, name: str, namespace: str = "web") -> None:
        self.tell("DELETED", self.pods.pop((namespace, name)))

    def forget_history(self) -> None:
        """What was before cannot be watched any more, and whoever watches is cut off."""
        with self.changed:
            self.oldest = self.version
            self.events.clear()
        self.drop()

    def drop(self) -> None:
        """Cut everyone off."""
        for stream in list(self.streams):
            with contextlib.suppress(OSError):  # they have hung up
                stream.shutdown(socket.SHUT_RDWR)

    def later_than(self, version: int) -> list[tuple[int, str, dict[str, Any]]]:
        """What has changed since, as soon as something has; nothing after a while."""
        with self.changed:
            self.changed.wait_for(lambda: self.version > version, timeout=30)
            return [event for event in self.events if event[0] > version]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self.drop()

    def tell(self, kind: str, pod: dict[str, Any]) -> None:
        with self.changed:
            self.version += 1
            pod["metadata"]["resourceVersion"] = str(self.version)
            self.events.append((self.version, kind, json.loads(json.dumps(pod))))
            self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

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
            self._answer(200, pod) if pod else self._refuse(404, f'pods "{name}" not found')
        elif query.get("watch"):
            self._stream(int(query["resourceVersion"]), fits)
        else:
            pods = [pod for pod in self.api.pods.values() if fits(pod)]
            version = {"resourceVersion": str(self.api.version)}
            self._answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": version, "items": pods})

    def do_PATCH(self) -> None:
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found, _ = self._asked()
        if found is None:
            return
        namespace, name, resize = found.groups()
        pod = self.api.pods.get((namespace, name))
        if not resize or self.headers["Content-Type"] != "application/strategic-merge-patch+json":
            self._refuse(415, "the body of the request was in an unknown format")
        elif pod is None:
            self._refuse(404, f'pods "{name}" not found')
        else:
            self._resize(pod, patch)

    def _resize(self, pod: dict[str, Any], patch: dict[str, Any]) -> None:
        there = {container["name"]: container for container in pod["spec"]["containers"]}
        for asked in patch["spec"]["containers"]:
            if asked["name"] not in there:
                self._refuse(422, f'spec.containers: Forbidden: there is no "{asked["name"]}"')
                return
            resources = there[asked["name"]]["resources"]
            for kind, values in asked["resources"].items():
                resources[kind] = resources.get(kind, {}) | values
        self.api.tell("MODIFIED", pod)
        self._answer(200, pod)

    def _asked(self) -> tuple[re.Match[str] | None, dict[str, str]]:
        """What is asked for, unless the request is to be refused."""
        self.api.requests.append(self.path)
        parts = urlsplit(self.path)
        found = _PATH.fullmatch(parts.path)
        if self.api.refusals:
            self._refuse(*self.api.refusals.pop(0))
            return None, {}
        if found is None:
            self._refuse(404, "the server could not find the requested resource")
        return found, {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _stream(self, version: int, fits: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.api.streams.append(self.connection)
        self.close_connection = True
        try:
            if version < self.api.oldest:
                gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                self._chunk({"type": "ERROR", "object": gone})
                return
            while new := self.api.later_than(version):
                for _, kind, pod in new:
                    if fits(pod):
                        self._chunk({"type": kind, "object": pod})
                version = new[-1][0]
        except OSError:
            pass  # they have hung up
        finally:
            self.api.streams.remove(self.connection)

    def _chunk(self, told: dict[str, Any]) -> None:
        line = json.dumps(told).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def _refuse(self, status: int, message: str) -> None:
        self._answer(status, {"kind": "Status", "apiVersion": "v1", "code": status, "message": message})

    def _answer(self, status: int, told: dict[str, Any]) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


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
