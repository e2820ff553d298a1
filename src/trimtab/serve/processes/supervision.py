"""Supervised child processes, whose computing delays no answer; and the log of all of them.

A child gets one end of a socket pair as its standard input. The first line from there is its configuration
as JSON; at the end of file it ends. The kernel kills it with the process that started it.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from trimtab.kernel import die_with_parent
from trimtab.serve.settings import Settings

log = logging.getLogger("trimtab.serve")

_END = 20.0  # s in which a child has to end when it is asked to
_PAUSE = 1.0  # s before it is started again


class SupervisedProcess:
    """A child process that is started again when it ends by itself.

    `entry` is the function it runs, as in "trimtab.serve.processes.scheduler:main". Each time it is started,
    `talk` is called with our end of the sockets in a thread of its own, and returns when the child has closed
    its end; if it returns False, the child is not started again.
    """

    def __init__(self, name: str, entry: str, config: Any, talk: Callable[[socket.socket], bool]) -> None:
        module, _, function = entry.partition(":")
        self._name = name
        self._command = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
        self._config = json.dumps(config).encode() + b"\n"
        self._talk = talk
        self._end = threading.Event()
        self._changing = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # The thread lives as long as the child that it starts: the kernel kills the child with it.
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Ask the child to end, wait for it, and kill it if it does not."""
        with self._changing:
            self._end.set()
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)
        if self._process is not None:
            try:
                self._process.wait(_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                if not self._run_once() or self._end.is_set():
                    return
                assert self._process is not None
                status = self._process.returncode
                log.error("the %s ended with status %s; it is started again", self._name, status)
            except OSError as error:
                log.error("the %s cannot be started now: %s", self._name, error.strerror or error)
            self._end.wait(_PAUSE)

    def _run_once(self) -> bool:
        """Start the child and wait for its end; whether it may be started again."""
        parent_end, child_end = socket.socketpair()
        with parent_end:
            with child_end, self._changing:
                if self._end.is_set():
                    return False
                self._process = subprocess.Popen(self._command, stdin=child_end.fileno())
                self._socket = parent_end
            with contextlib.suppress(OSError):
                parent_end.sendall(self._config)
            again = self._talk(parent_end)
            self._process.wait()
            with self._changing:
                self._socket = None
        return again


def supervised_child() -> tuple[socket.socket, Any]:
    """Called first in the child: its end of the sockets, and its configuration."""
    parent = os.getppid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one in order
    # Requests come first if there are too few CPUs; children of this process get the usual policy again.
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.sched_setscheduler(0, os.SCHED_BATCH | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    child_end = socket.socket(fileno=os.dup(0))
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = child_end.recv(1)
        if not byte:
            sys.exit(1)
        line += byte
    return child_end, json.loads(line)


@contextlib.contextmanager
def log_to_stderr(settings: Settings) -> Iterator[None]:
    """Show the log on standard error while the block runs, in the settings' format and from their level."""
    logger, handler = logging.getLogger("trimtab"), _StderrHandler(as_json=settings.log_format == "json")
    logger.addHandler(handler)
    logger.setLevel(settings.log_level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _StderrHandler(logging.Handler):
    """Prints without Rich, which takes thirty times as long: every write to the API has a line."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + logging.Formatter().formatException(record.exc_info)
        if self._as_json:
            about = {"time": record.created, "level": record.levelname.lower(), "logger": record.name}
            line = json.dumps({**about, "message": message})
        else:
            line = f"{time.strftime('%H:%M:%S')} {message}"
        print(line, file=sys.stderr, flush=True)
