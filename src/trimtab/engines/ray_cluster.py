"""A Ray cluster over HTTP: its nodes, and the jobs submitted to it. Ray itself need not be installed here.

This is the dashboard's REST interface, which Ray's own client speaks too; that one waits for ever where a
cluster does not answer.
"""

import hashlib
import http.client
import io
import json
import os
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, Node, TrimtabError

_TIMEOUT = 20.0  # s for an answer
_MOST_NODES = 10_000  # as many as Ray lists at once
_OVER = {"SUCCEEDED", "FAILED", "STOPPED"}


class RayError(TrimtabError):
    """The cluster refuses (its HTTP status), or does not answer (0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node with the id that Ray knows it by."""

    id: str
    node: Node


@dataclass(frozen=True, slots=True)
class RayJob:
    """A job as Ray sees it. Times in seconds; `exit_code` is the driver's, None where nobody saw it.

    `node` is the id of the driver's node, and `package` what it has as its folder there.
    """

    id: str
    status: str
    message: str
    error: str
    end: float | None
    exit_code: int | None
    node: str | None
    package: str

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or another."""
        return self.status in _OVER


class RayCluster:
    """The dashboard at HOST:PORT."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or "/" in address:
            raise BadInputError(
                f'"ray://{address}" is no address of a Ray cluster; name its dashboard, as in ray://HOST:8265'
            )
        self.address = address

    def nodes(self) -> list[RayNode]:
        """Those that are alive, by name; nodes of one name get a part of their id."""
        told = self._json("GET", f"/api/v0/nodes?limit={_MOST_NODES}")
        alive = [each for each in told["data"]["result"]["result"] if each["state"] == "ALIVE"]
        names = [each["node_name"] or each["node_ip"] for each in alive]
        found = []
        for each, name in zip(alive, names, strict=True):
            unique = name if names.count(name) == 1 else f"{name}-{each['node_id'][:8]}"
            found.append(RayNode(each["node_id"], _node(unique, each["resources_total"], each["labels"])))
        return sorted(found, key=lambda each: each.node.name)

    def upload(self, files: Mapping[str, bytes]) -> str:
        """Hand over a package of files; the address by which jobs name it as their folder."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as package:
            for name, content in sorted(files.items()):
                package.writestr(zipfile.ZipInfo(name), content)
        body = buffer.getvalue()
        name = f"_ray_pkg_{hashlib.sha256(body).hexdigest()[:32]}.zip"
        self._ask("PUT", f"/api/packages/gcs/{name}", body)
        return f"gcs://{name}"

    def submit(self, job_id: str, command: str, package: str, node: str | None = None, **more: Any) -> None:
        """Start a command in a package's folder, unless there has been a job of that id before."""
        asked: dict[str, Any] = {"entrypoint": command, "submission_id": job_id, **more}
        asked["runtime_env"] = {"working_dir": package, **more.get("runtime_env", {})}
        if node is not None:
            asked["entrypoint_label_selector"] = {"ray.io/node-id": node}
        try:
            self._json("POST", "/api/jobs/", asked)
        except RayError as error:
            if not error.status or self.job(job_id) is None:
                raise

    def jobs(self) -> dict[str, RayJob]:
        """All that were submitted and are remembered, by id."""
        told = self._json("GET", "/api/jobs/")
        return {each["submission_id"]: _job(each) for each in told if each.get("submission_id")}

    def job(self, job_id: str) -> RayJob | None:
        """One of them, or None."""
        try:
            return _job(self._json("GET", f"/api/jobs/{job_id}"))
        except RayError as error:
            if error.status == 404:
                return None
            raise

    def output(self, job_id: str) -> str:
        """What the job's driver has written."""
        return str(self._json("GET", f"/api/jobs/{job_id}/logs")["logs"])

    def stop(self, job_id: str) -> None:
        """Ask Ray to end a job's driver; it kills it some seconds later."""
        self._json("POST", f"/api/jobs/{job_id}/stop")

    def forget(self, job_id: str) -> None:
        """Take a job that has ended off Ray's list."""
        self._json("DELETE", f"/api/jobs/{job_id}")

    def _json(self, method: str, path: str, asked: Any = None) -> Any:
        body = None if asked is None else json.dumps(asked).encode()
        answer = self._ask(method, path, body)
        try:
            return json.loads(answer)
        except ValueError:
            raise RayError(0, f"what answers at {self.address} is no Ray dashboard") from None

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            body,
            {"Content-Type": "application/json", **_token()},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # nosec B310 # always http
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            why = _last_line(error.read().decode(errors="replace"))
            raise RayError(error.code, f"the Ray cluster at {self.address} refuses: {why}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            why = str(getattr(reason, "strerror", None) or reason or type(reason).__name__).lower()
            raise RayError(
                0,
                f"the Ray cluster at {self.address} does not answer ({why}); runs there are left as they are",
            ) from None


def _token() -> dict[str, str]:
    """The token of clusters that want one, where Ray's own tools look for it."""
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise BadInputError(
                f"RAY_AUTH_TOKEN_PATH names {path}, which cannot be read: {error.strerror}"
            ) from None
    return {"Authorization": f"Bearer {token}"} if token else {}


def _node(name: str, resources: Mapping[str, float], labels: Mapping[str, str]) -> Node:
    kinds = [each.partition(":")[2] for each in resources if each.startswith("accelerator_type:")]
    kind = labels.get("accelerator") or labels.get("ray.io/accelerator-type") or next(iter(kinds), "")
    gpus = int(resources.get("GPU", 0))
    return Node(
        name,
        cpus=float(resources.get("CPU", 0)),
        memory=float(resources.get("memory", 0)),
        accelerator=kind if gpus else "",
        gpus=gpus,
        zone=labels.get("zone") or labels.get("ray.io/availability-zone", ""),
    )


def _job(told: Mapping[str, Any]) -> RayJob:
    end = told.get("end_time")
    return RayJob(
        told["submission_id"],
        told["status"],
        told.get("message") or "",
        told.get("error_type") or "",
        end / 1000 if end else None,
        told.get("driver_exit_code"),
        told.get("driver_node_id"),
        (told.get("runtime_env") or {}).get("working_dir", ""),
    )


def _last_line(text: str) -> str:
    """Ray answers with a traceback, whose last line with words says what is wrong."""
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip(" .")]
    return lines[-1][:300] if lines else "without a reason"
