"""A stand-in for the Kubernetes API server, and for kubelets that run the pods of Jobs as processes."""

import base64
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from small_api import SmallHandler, SmallServer

INDEX = "batch.kubernetes.io/job-completion-index"


_PATH = re.compile(r"/(?:api|apis/batch)/v1(?:/namespaces/([^/]+))?/(\w+)(?:/([^/]+))?(?:/(\w+))?")


_KINDS = {"jobs": "Job", "pods": "Pod", "services": "Service", "secrets": "Secret", "nodes": "Node"}


class KubernetesServer(SmallServer):
    """Objects by kind and name, in one namespace. Tests play the controllers."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.logs: dict[str, str] = {}
        self.executed: list[tuple[str, list[str]]] = []
        self.refusal: tuple[int, str] | None = None
        self.on_created: Callable[[str], None] = lambda kind: None
        self.on_executed: Callable[[str, list[str]], int] = lambda pod, command: 0

    def put(self, kind: str, told: dict[str, Any], event: str = "MODIFIED") -> None:
        name = told["metadata"]["name"]
        told["kind"] = _KINDS[kind]
        with self.changed:
            if event == "DELETED":
                del self.objects[kind, name]
            else:
                self.objects[kind, name] = told
            self.tell(event, told)

    def node(self, name: str, **more: Any) -> None:
        allocatable = {"cpu": "7900m", "memory": f"{16 * 2**20}Ki", **more.get("devices", {})}
        ready = {"type": "Ready", "status": more.get("ready", "True")}
        labels = {"kubernetes.io/hostname": f"{name}.here", "topology.kubernetes.io/zone": "a"}
        metadata = {"name": name, "labels": {**labels, **more.get("labels", {})}}
        status = {"conditions": [ready], "allocatable": allocatable}
        self.put("nodes", {"metadata": metadata, "spec": {}, "status": status}, "ADDED")

    def job(self) -> dict[str, Any]:
        (found,) = (each for (kind, _), each in self.objects.items() if kind == "jobs")
        return found

    def begin(self, name: str, *ranks: int) -> None:
        """The pods of these ranks of a Job run."""
        for rank in ranks:
            state = {"running": {"startedAt": f"2026-08-22T10:00:0{rank}Z"}}
            metadata = {
                "name": f"{name}-{rank}-x",
                "labels": {"batch.kubernetes.io/job-name": name},
                "annotations": {INDEX: str(rank)},
            }
            status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}
            self.put("pods", {"metadata": metadata, "spec": {"containers": []}, "status": status}, "ADDED")

    def end(self, codes: dict[int, int], condition: str, **more: Any) -> None:
        """Pods end with these exit codes, one after the other, and the Job with a condition."""
        name = more.get("name") or self.job()["metadata"]["name"]
        for second, (rank, code) in enumerate(codes.items()):
            pod = self.objects["pods", f"{name}-{rank}-x"]
            pod["status"]["phase"] = "Failed" if code else "Succeeded"
            times = {"startedAt": "2026-08-22T10:00:00Z", "finishedAt": f"2026-08-22T10:01:0{second}Z"}
            reason = {"reason": more["reason"]} if "reason" in more else {}
            state = {"terminated": {"exitCode": code, **times, **reason}}
            pod["status"]["containerStatuses"][0]["state"] = state
            pod["status"]["conditions"] = more.get("pod_conditions", [])
            self.put("pods", pod)
        ended = {"type": condition, "status": "True", "lastTransitionTime": "2026-08-22T10:02:00Z"}
        job = self.objects["jobs", name]
        job["status"] = {"conditions": [{**ended, "message": more.get("message", "")}]}
        self.put("jobs", job)


class _Handler(SmallHandler):
    def do_GET(self) -> None:
        kind, name, part, query = self._asked()
        if kind == "":
            return
        wanted = dict(each.split("=") for each in query.get("labelSelector", [""])[0].split(",") if each)

        def fits(told: dict[str, Any]) -> bool:
            labels = told["metadata"].get("labels") or {}
            return told["kind"] == _KINDS[kind] and wanted.items() <= labels.items()

        if part == "exec":
            self._execute(name, query["command"])
        elif part == "log":
            self.answer_bytes(200, self.api.logs.get(name, "").encode())
        elif name:
            found = self.api.objects.get((kind, name))
            self.answer(200, found) if found else self.refuse(404, f'{kind} "{name}" not found')
        elif query.get("watch"):
            self.stream(int(query["resourceVersion"][0]), fits)
        else:
            self.list(_KINDS[kind], self.api.objects, fits)

    def do_POST(self) -> None:
        told = self.body()
        kind, *_ = self._asked()
        if kind == "":
            return
        name = told["metadata"]["name"]
        if (kind, name) in self.api.objects:
            self.refuse(409, f'{kind} "{name}" already exists')
            return
        self.api.put(kind, told, "ADDED")
        self.api.on_created(kind)
        self.answer(201, told)

    def do_DELETE(self) -> None:
        body = self.body()
        kind, name, _, _ = self._asked()
        found = self.api.objects.get((kind, name))
        if found is None:
            self.refuse(404, f'{kind} "{name}" not found')
            return
        self.api.bodies.append({"deleted": kind, **body})
        self.api.put(kind, found, "DELETED")
        self.answer(200, {"kind": "Status", "status": "Success"})

    def do_PATCH(self) -> None:
        self.api.bodies.append(self.body())
        _, name, part, _ = self._asked()
        assert part == "resize"
        self.answer(200, self.api.objects["pods", name])

    def _asked(self) -> tuple[str, str, str, dict[str, list[str]]]:
        self.api.asked.append(f"{self.command} {self.path}")
        parts = urlsplit(self.path)
        found = _PATH.fullmatch(parts.path)
        if self.api.refusal or found is None or found[1] not in (None, "training"):
            self.refuse(*(self.api.refusal or (404, "the server could not find the requested resource")))
            return "", "", "", {}
        return found[2], found[3] or "", found[4] or "", parse_qs(parts.query)

    def _execute(self, pod: str, command: list[str]) -> None:
        """A web socket with one frame on channel 3, where a command's end is told."""
        self.api.executed.append((pod, command))
        status = self.api.on_executed(pod, command)
        magic = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.send_header(
            "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()
        )
        self.end_headers()
        answer: dict[str, Any] = {"metadata": {}, "status": "Failure" if status else "Success"}
        if status:
            answer["details"] = {"causes": [{"reason": "ExitCode", "message": str(status)}]}
        end = b"\x03" + json.dumps(answer).encode()
        self.wfile.write(bytes([0x82, 126]) + len(end).to_bytes(2, "big") + end + b"\x88\x00")
        self.close_connection = True


class Kubelets:
    """Runs the pods of every Job as processes of this machine, and keeps the statuses of both up to date."""

    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._environments: dict[str, dict[str, str]] = {}
        self._ended = threading.Event()
        server.on_executed = self._execute
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for name in list(self._processes):
            self._end(name, signal.SIGKILL)

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            objects = dict(self._server.objects)
            for name in [name for kind, name in objects if kind == "jobs"]:
                if name not in self._processes and self._complete(name, objects):
                    self._begin(name, objects)
                elif name in self._processes:
                    self._look(name, objects["jobs", name])
            for name in [name for name in self._processes if ("jobs", name) not in objects]:
                self._end(name, signal.SIGKILL)
                del self._processes[name]

    def _complete(self, name: str, objects: Mapping[tuple[str, str], Any]) -> bool:
        """Whether the Service, and the Secret if the pods need one, have been made too."""
        (container,) = objects["jobs", name]["spec"]["template"]["spec"]["containers"]
        needed = ["services", "secrets"] if "envFrom" in container else ["services"]
        return all((kind, name) in objects for kind in needed)

    def _begin(self, name: str, objects: Mapping[tuple[str, str], Any]) -> None:
        spec = objects["jobs", name]["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        secret = objects.get(("secrets", name), {}).get("stringData", {})
        command = [word.replace("$$", "$") for word in container["command"]]
        variables = self._environments[name] = {"PATH": os.environ["PATH"], **secret, **given}
        self._processes[name] = [
            subprocess.Popen(
                command,
                env={**variables, "RANK": str(rank)},
                stdout=(self._folder / f"{name}-{rank}").open("wb"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for rank in range(spec["parallelism"])
        ]
        self._server.begin(name, *range(spec["parallelism"]))

    def _look(self, name: str, job: Mapping[str, Any]) -> None:
        processes = self._processes[name]
        for rank in range(len(processes)):
            text = (self._folder / f"{name}-{rank}").read_text(errors="replace")
            lines = text.splitlines(keepends=True)
            self._server.logs[f"{name}-{rank}-x"] = "".join(f"2026-08-22T10:00:00Z {line}" for line in lines)
        codes = [process.poll() for process in processes]
        if job.get("status") or (not any(codes) and None in codes):
            return
        if None in codes:
            self._end(name, signal.SIGTERM)
        codes = [process.wait() for process in processes]
        first = {rank: 128 - code if code < 0 else code for rank, code in enumerate(codes)}
        order = dict(sorted(first.items(), key=lambda each: each[1] in (0, 143)))
        self._server.end(order, "Failed" if any(codes) else "Complete", name=name)

    def _end(self, name: str, number: signal.Signals) -> None:
        for process in self._processes[name]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _execute(self, pod: str, command: list[str]) -> int:
        """Runs a command in a pod; process 1 of `kill -s NAME 1` is the pod's own."""
        name, rank, _ = pod.rsplit("-", 2)
        if command[-1].startswith("kill -s"):
            self._processes[name][int(rank)].send_signal(signal.Signals[f"SIG{command[-1].split()[2]}"])
            return 0
        return subprocess.run(command, env={**self._environments[name], "RANK": rank}, check=False).returncode


def write_kubeconfig(path: Path, address: str) -> None:
    """A configuration for the official client that names this server."""
    cluster = {"name": "c", "cluster": {"server": address}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    named = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **named}))
