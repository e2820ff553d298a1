"""A real Ray cluster of three nodes on this machine, behind a gate that can be shut."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trimtab.core import TrimtabError
from trimtab.engines.ray.engine import RayCluster
from trimtab.kernel import die_with_parent, processes

GIB = 2**30


NODES = {"big": ("a100", 4), "small": ("t4", 2), "other": ("v100", 2)}


class Gate:
    """Stands before the dashboard, and can be shut. `on_submitted` is called before a submitter is told."""

    def __init__(self, port: int) -> None:
        self.open = True
        self.on_submitted: Callable[[], None] | None = None
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: object) -> None:
                pass

            def handle_any(self) -> None:
                if not gate.open:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = _passed_on(f"http://127.0.0.1:{port}{self.path}", self.command, body)
                if gate.on_submitted and self.command == "POST" and self.path == "/api/jobs/":
                    gate.on_submitted()
                with contextlib.suppress(OSError):  # the sender may be gone
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _passed_on(url: str, method: str, body: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body or None, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class SmallRay:
    """The nodes as processes, each with all of its own in one session."""

    def __init__(self, ports: Callable[[], int]) -> None:
        self._ports = ports
        self._folder = Path(tempfile.mkdtemp(prefix="tt-ray-"))  # short, for the sockets in it
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._head, self._dashboard = ports(), ports()

    def start(self) -> None:
        self._start(
            "big",
            "--head",
            f"--port={self._head}",
            f"--dashboard-port={self._dashboard}",
            f"--ray-client-server-port={self._ports()}",
        )
        self.gate = Gate(self._dashboard)
        _until(lambda: _answers(self._head), 60)
        for name in ("small", "other"):
            self._start(name, f"--address=127.0.0.1:{self._head}")
        _until(lambda: len(_nodes(self.gate.address)) == len(NODES), 90)

    def _start(self, name: str, *options: str) -> None:
        accelerator, gpus = NODES[name]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats",
                   f"--node-name={name}", f"--num-gpus={gpus}", "--num-cpus=8", f"--memory={GIB}",
                   f"--object-store-memory={80 * 2**20}", f"--labels=accelerator={accelerator},zone=here",
                   f"--dashboard-agent-listen-port={self._ports()}", f"--temp-dir={self._folder / name}",
                   *options]  # fmt: skip
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        noticed_soon = {"RAY_health_check_period_ms": "1000"}
        self._nodes[name] = subprocess.Popen(
            command,
            env={**os.environ, **noticed_soon, "PATH": path, "LC_NODE": name},
            stdout=(self._folder / f"{name}.log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),
        )

    def kill(self, name: str) -> None:
        """All of a node's processes at once, as when its power fails."""
        sid = self._nodes[name].pid
        while members := [p.pid for p in processes() if not p.zombie and _session(p.pid) == sid]:
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._nodes[name].wait()

    def logs(self) -> str:
        """The end of what every node has said."""
        return "\n".join(path.read_text()[-1000:] for path in self._folder.glob("*.log"))

    def close(self) -> None:
        for name in self._nodes:
            self.kill(name)
        self.gate.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _nodes(address: str) -> list[Any]:
    with contextlib.suppress(TrimtabError):
        return RayCluster(address).nodes()
    return []


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _until(holds: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


@contextlib.contextmanager
def open_ray(free_port: Callable[[], int]) -> Iterator[SmallRay]:
    """A cluster that has started; skips the test if Ray is not installed."""
    pytest.importorskip("ray", reason="needs ray[default]==2.60.0")
    pytest.importorskip("aiohttp_cors", reason="needs ray[default]==2.60.0")
    cluster = SmallRay(free_port)
    try:
        try:
            cluster.start()
        except AssertionError:
            pytest.fail(f"the cluster did not start: {cluster.logs()}")
        yield cluster
    finally:
        cluster.close()
