"""Servers that the bench starts: `trimtab up`, and a constant server."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trimtab.core import TrimtabError
from trimtab_bench.processes import free_port

_READY = 60.0  # s until a server must answer
_END = 15.0  # s that it has to end
_CONSTANT = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/constant")
async def constant() -> dict[str, str]:
    return {"status": "ok"}
at = {"host": "127.0.0.1", "port": int(sys.argv[1])}
uvicorn.run(app, **at, loop="uvloop", http="httptools", access_log=False, log_level="warning")
"""
TRIMTAB = (sys.executable, "-c", "from trimtab.cli import main; main()")
"""The command line, in this interpreter."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server at a port of this machine, ready after `ready` seconds."""

    process: "subprocess.Popen[bytes]"
    port: int
    ready: float = 0.0

    def cpu_seconds(self) -> float:
        """CPU time of the server and of the scheduler that it started."""
        times = [process.cpu_times() for process in self._processes()]
        return float(sum(used.user + used.system for used in times))

    def memory(self) -> int:
        """Resident bytes of both."""
        return sum(int(process.memory_info().rss) for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children()]

    @contextlib.contextmanager
    def connection(self, token: str = "") -> Iterator[Callable[..., Any]]:
        """A kept connection: a function of method, path and body that returns the answer's JSON."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"

        def ask(method: str, path: str, body: Any = None) -> Any:
            line.request(method, path, None if body is None else json.dumps(body), headers)
            answer = line.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise TrimtabError(f"{path} was answered with status {answer.status}: {text[:200]!r}")
            return json.loads(text)

        with contextlib.closing(line):
            yield ask

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def up(home: Path, store: str, *more: str) -> Iterator[ServerProcess]:
    """`trimtab up` at a free port, once it is ready."""
    port = free_port()
    command = [*TRIMTAB, "up", "--listen", f"127.0.0.1:{port}", "--store", store, *more]
    with _served(command, port, "/v1/ready", home) as server:
        yield server


@contextlib.contextmanager
def constant_server(folder: Path) -> Iterator[ServerProcess]:
    """A FastAPI server with one route that returns a constant."""
    port = free_port()
    command = [sys.executable, "-c", _CONSTANT, str(port)]
    with _served(command, port, "/constant", folder) as server:
        yield server


@contextlib.contextmanager
def _served(command: list[str], port: int, path: str, home: Path) -> Iterator[ServerProcess]:
    home.mkdir(parents=True, exist_ok=True)
    log = home / f"server-{port}.log"
    unset = ("TRIMTAB_STORE", "TRIMTAB_TOKEN", "TRIMTAB_SERVER", "TRIMTAB_CONFIG")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["TRIMTAB_HOME"] = str(home)
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        while not _answers(f"http://127.0.0.1:{port}{path}"):
            if process.poll() is not None or time.monotonic() > began + _READY:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise TrimtabError(f"the server that is to be measured did not start: {' '.join(last)}")
            time.sleep(0.05)
        yield ServerProcess(process, port, time.monotonic() - began)
    finally:
        process.terminate()
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):  # nosec B310 # always http, at loopback
            return True
    except (urllib.error.URLError, OSError):
        return False
