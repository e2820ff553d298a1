"""Processes that the bench starts: the system, a constant server, PostgreSQL, and children of its own."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trimtab.core import MissingDependencyError, TrimtabError

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
_TRIMTAB = (sys.executable, "-c", "from trimtab.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Child:
    """A process of ours. Lines go in and out as JSON."""

    process: "subprocess.Popen[str]"

    def tell(self, told: Any) -> None:
        """Say something to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        """What it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise TrimtabError(f"a process of the bench ended early, with status {self.process.wait()}")
        return json.loads(line)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers at a port of this machine, and did so after `ready` seconds."""

    process: "subprocess.Popen[bytes]"
    port: int
    ready: float = 0.0

    def cpu_seconds(self) -> float:
        """CPU time that it has taken, with that of the scheduler beside it."""
        times = [each.cpu_times() for each in self._processes()]
        return float(sum(each.user + each.system for each in times))

    def memory(self) -> int:
        """Bytes that they have in memory."""
        return sum(int(each.memory_info().rss) for each in self._processes())

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children()]

    @contextlib.contextmanager
    def connection(self, token: str) -> Iterator[Callable[..., Any]]:
        """A kept connection: called with a method, a path and a body, it returns the answer's JSON."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def ask(method: str, path: str, body: Any = None) -> Any:
            line.request(method, path, None if body is None else json.dumps(body), headers)
            answer = line.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise TrimtabError(f"{path} was answered with status {answer.status}: {text[:200].decode()}")
            return json.loads(text)

        with contextlib.closing(line):
            yield ask

    def kill(self) -> None:
        """Kill it at once (SIGKILL)."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def child(module: str) -> Iterator[Child]:
    """A module of this package as a process; it is ended with the block."""
    command = [sys.executable, "-m", f"trimtab_bench.serve.{module}"]
    # In a session of its own: Ctrl-C is for us, and we end it.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield Child(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def up(home: Path, store: str, *more: str) -> Iterator[Server]:
    """`trimtab up` at a free port, once it is ready."""
    port = free_port()
    command = [*_TRIMTAB, "up", "--listen", f"127.0.0.1:{port}", "--store", store, *more]
    with _served(command, port, "/v1/ready", home) as server:
        yield server


@contextlib.contextmanager
def constant_server(folder: Path) -> Iterator[Server]:
    """The server that answers everybody with a constant."""
    port = free_port()
    command = [sys.executable, "-c", _CONSTANT, str(port)]
    with _served(command, port, "/constant", folder) as server:
        yield server


@contextlib.contextmanager
def _served(command: list[str], port: int, path: str, home: Path) -> Iterator[Server]:
    home.mkdir(parents=True, exist_ok=True)
    said = home / f"said-{port}.log"
    unset = ("TRIMTAB_STORE", "TRIMTAB_TOKEN", "TRIMTAB_SERVER", "TRIMTAB_CONFIG")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    began = time.monotonic()
    with said.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment | {"TRIMTAB_HOME": str(home)},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, f"http://127.0.0.1:{port}{path}", said)
        yield Server(process, port, time.monotonic() - began)
    finally:
        _end(process)


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, said: Path) -> None:
    deadline = time.monotonic() + _READY
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # nosec B310 # always http, at loopback
                return
        except (urllib.error.URLError, OSError):
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            last = said.read_text(errors="replace").strip().splitlines()[-1:]
            raise TrimtabError(f"the server that is to be measured did not start: {' '.join(last)}")
        time.sleep(0.05)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


_OUTPUT = 1


def say(**told: Any) -> None:
    """Say all of it: without a buffer, `print` drops what a pipe does not take at once."""
    left = memoryview(json.dumps(told).encode() + b"\n")
    while left:
        left = left[os.write(_OUTPUT, left) :]


_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"


def programs() -> Path:
    """The folder of the newest server's programs; raises where none is installed."""
    found = sorted(_DEBIAN.glob("*/bin/initdb"))
    if not found:
        raise MissingDependencyError("there is no PostgreSQL server here; apt-get install postgresql")
    return found[-1].parent


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database while the block runs."""
    binaries = programs()
    # Not in the home: the server's own user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="trimtab-bench-postgres-"))
    data, port = folder / "data", free_port()
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _USER, _USER)
        told = ("-U", "trimtab", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        _ran(binaries / "initdb", "-D", str(data), *told)
        options = f"-h 127.0.0.1 -p {port} -k {folder}"
        _ran(binaries / "pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        yield f"postgresql://trimtab@127.0.0.1:{port}/postgres"
    finally:
        if (data / "postmaster.pid").exists():
            with contextlib.suppress(TrimtabError):
                _ran(binaries / "pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _ran(program: Path, *arguments: str) -> None:
    command = [str(program), *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", *command]
    # A server that had a pipe for its output would keep it, and whoever waits for its end.
    done = subprocess.run(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    if done.returncode:
        raise TrimtabError(f"{program.name} failed with status {done.returncode}")
