"""Child processes that benches start, and their lines of JSON."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trimtab.core import TrimtabError
from trimtab.kernel import die_with_parent


@contextmanager
def process(words: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A process that is killed when the context ends, and when this process dies."""
    with subprocess.Popen(words, preexec_fn=lambda: die_with_parent(signal.SIGKILL), **options) as child:
        try:
            yield child
        finally:
            child.kill()


@dataclass(frozen=True, slots=True)
class Child:
    """A child process that reads and writes lines of JSON."""

    process: "subprocess.Popen[str]"

    def send(self, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise TrimtabError(f"a process of the bench ended early, with status {self.process.wait()}")
        return json.loads(line)


@contextmanager
def child(*arguments: str, **options: Any) -> Iterator[Child]:
    """A Python process with these arguments; killed when the context ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # In a session of its own: Ctrl-C goes to this process, which ends the child.
    with process([sys.executable, *arguments], **pipes, start_new_session=True, **options) as started:
        yield Child(started)


def write_line(**values: Any) -> None:
    """Write a line of JSON to standard output; `print` without a buffer drops what a pipe does not take."""
    left = memoryview(json.dumps(values).encode() + b"\n")
    while left:
        left = left[os.write(1, left) :]


def free_port() -> int:
    """A free TCP port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


_QUIET_PORTS = range(20_000, 30_000)  # below those that outgoing connections get


def quiet_port() -> int:
    """A free TCP port of the loopback address that outgoing connections never get."""
    for port in random.sample(_QUIET_PORTS, len(_QUIET_PORTS)):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise TrimtabError(f"no TCP port from {_QUIET_PORTS.start} to {_QUIET_PORTS.stop} is free")
