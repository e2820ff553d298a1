"""Processes that the bench starts: the system itself, and children that say one JSON object a line."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from trimtab.core import TrimtabError

_READY = 60.0  # s until a server must answer
_END = 15.0  # s that it has to end
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

    def kill(self) -> None:
        """At once, without a chance to do anything about it."""
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
    command = [sys.executable, "-m", "trimtab_bench.serve.constant", str(port)]
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
