"""A process of ours beside this one: what it computes holds up nothing here.

It gets one end of a pair of sockets as its standard input. The first line that comes from there is what it is
told, as JSON; when nothing more can come, it ends. The kernel ends it with the process that started it.
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
from collections.abc import Callable
from typing import Any

from trimtab.kernel import die_with_parent

log = logging.getLogger("trimtab.serve")

_END = 20.0  # s in which it has to end when it is told to
_PAUSE = 1.0  # s before it is started again


class Companion:
    """The process, watched: when it ends by itself, it is started again.

    `entry` is the function it runs, as in "trimtab.serve.beside:schedule". In each life, `meet` is given our
    end of the sockets, in a thread of its own, and returns when the process has hung up; once it has returned
    False, there are no more lives.
    """

    def __init__(self, name: str, entry: str, told: Any, meet: Callable[[socket.socket], bool]) -> None:
        module, _, function = entry.partition(":")
        self._name = name
        self._command = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
        self._told = json.dumps(told).encode() + b"\n"
        self._meet = meet
        self._end = threading.Event()
        self._changing = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # It lives as long as the process that it starts, which the kernel ends with the thread.
        self._thread = threading.Thread(target=self._watch, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Let it end in order."""
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

    def _watch(self) -> None:
        while self._live() and not self._end.is_set():
            assert self._process is not None
            status = self._process.returncode
            log.error("the %s ended with status %s; it is started again", self._name, status)
            self._end.wait(_PAUSE)

    def _live(self) -> bool:
        """One life of it; whether there may be another."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._changing:
                if self._end.is_set():
                    return False
                self._process = subprocess.Popen(self._command, stdin=theirs.fileno())
                self._socket = ours
            with contextlib.suppress(OSError):
                ours.sendall(self._told)
            again = self._meet(ours)
            self._process.wait()
            with self._changing:
                self._socket = None
        return again


def begun() -> tuple[socket.socket, Any]:
    """In the process itself, first of all: its end of the sockets, and what it is told."""
    parent = os.getppid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    # Answers go first where there are too few CPUs; what this starts is as important as ever.
    with contextlib.suppress(OSError):  # a sandbox may not let anybody say that
        os.sched_setscheduler(0, os.SCHED_BATCH | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    theirs = socket.socket(fileno=os.dup(0))
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = theirs.recv(1)
        if not byte:
            sys.exit(1)
        line += byte
    return theirs, json.loads(line)
