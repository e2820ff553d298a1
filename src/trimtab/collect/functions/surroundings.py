"""Surroundings of a measured function: forked processes, busy neighbours, a server, a folder."""

import contextlib
import functools
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from trimtab.core import StorageError
from trimtab.kernel import LimitedGroup, Owner, die_with_parent


@contextlib.contextmanager
def child(live: Callable[[], object]) -> Iterator[int]:
    """Fork a process that runs `live`; its pid. It is killed with the context."""
    pid = _fork(live)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(live: Callable[[], object]) -> int:
    # Python runs callbacks at a fork and ignores what is raised in them: not the moment for an exit.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                die_with_parent(signal.SIGKILL)
                live()
            finally:
                os._exit(0)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Processes in a group of their own, stopped until they are woken."""

    group: LimitedGroup
    pids: tuple[int, ...]

    def wake(self) -> None:
        """Keep the CPUs busy from now on."""
        self._signal(signal.SIGCONT)

    def rest(self) -> None:
        """Use nothing from now on."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)


@contextlib.contextmanager
def neighbours_on(cpus: tuple[int, ...]) -> Iterator[Neighbours]:
    """One neighbour for each of the CPUs; they end with the context, or with this process."""
    with LimitedGroup.create() as group, contextlib.ExitStack() as stack:
        pids = [stack.enter_context(child(functools.partial(_spin, cpu))) for cpu in cpus]
        for pid in pids:
            group.add(pid)
            os.waitpid(pid, os.WUNTRACED)  # until it has stopped itself
        yield Neighbours(group, tuple(pids))


def _spin(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        sum(range(10_000))


_BLOCK = os.urandom(1 << 20)
# It stands for another machine, so its CPU weight is far above the default of 1024.
_SHARES = 100_000


class _Handler(BaseHTTPRequestHandler):
    """`/call?size=&milliseconds=` and `/stream?chunks=&size=&milliseconds=`, sizes of one chunk in bytes."""

    def do_GET(self) -> None:
        """Answer one request."""
        query = {name: int(values[0]) for name, values in parse_qs(urlsplit(self.path).query).items()}
        chunks, size, wait = query.get("chunks", 1), query["size"], query["milliseconds"] / 1000
        self.send_response(200)
        self.send_header("Content-Length", str(chunks * size))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for _ in range(chunks):
                time.sleep(wait)
                self.wfile.write(_BLOCK[:size])

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _serve(pipe: Connection, cpus: frozenset[int]) -> None:
    os.sched_setaffinity(0, cpus)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        pipe.send(server.server_address[1])
        server.serve_forever()


@contextlib.contextmanager
def local_server(cpus: frozenset[int]) -> Iterator[str]:
    """A server on loopback in a process and a group of its own, on those CPUs; its address."""
    parent_end, child_end = Pipe()
    with parent_end, LimitedGroup.create() as group, child(lambda: _serve(child_end, cpus)) as pid:
        child_end.close()
        group.weigh_cpu(_SHARES)
        group.add(pid)
        yield f"http://127.0.0.1:{parent_end.recv()}"


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder in the temporary one, for as long as the context."""
    folder = Path(tempfile.gettempdir()) / Owner.current().name(secrets.token_hex(4))
    try:
        with files_of_functions():
            folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def files_of_functions() -> Iterator[None]:
    """Turn an OSError into one sentence: functions' files cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"files of functions cannot be written in {tempfile.gettempdir()}: "
            f"{(error.strerror or str(error)).lower()}; name another folder with TMPDIR"
        ) from None
