"""The server that functions call: it waits, then answers with so many bytes, at once or in chunks."""

import contextlib
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from urllib.parse import parse_qs, urlsplit

from trimtab.collect.functions.child import child
from trimtab.kernel import LimitedGroup

_BLOCK = os.urandom(1 << 20)
# It stands for another machine, so it goes before whatever else wants its CPUs; 1024 is everybody's default.
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
        """Say nothing."""


def _serve(pipe: Connection, cpus: frozenset[int]) -> None:
    os.sched_setaffinity(0, cpus)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        pipe.send(server.server_address[1])
        server.serve_forever()


@contextlib.contextmanager
def local_server(cpus: frozenset[int]) -> Iterator[str]:
    """A server on loopback in a process and a group of its own, on those CPUs; its address."""
    ours, theirs = Pipe()
    with ours, LimitedGroup.create() as group, child(lambda: _serve(theirs, cpus)) as pid:
        theirs.close()
        group.weigh_cpu(_SHARES)
        group.add(pid)
        yield f"http://127.0.0.1:{ours.recv()}"
