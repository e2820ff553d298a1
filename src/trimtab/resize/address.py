"""Addresses as people write them, and small HTTP servers at them that run beside the real work."""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trimtab.core import BadInputError


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; a host with colons stands in brackets."""
    host, colon, port = address.rpartition(":")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not re.fullmatch(r"[\w.:-]+", plain) or not port.isdecimal() or int(port) > 65535:
        raise BadInputError(f'"{address:.80}" is not an address such as 127.0.0.1:7433')
    if ":" in plain and plain == host:
        raise BadInputError(
            f'"{address:.80}" is not an address; put a host with colons in brackets, [::1]:7433'
        )
    return plain, int(port)


class HttpServer(ThreadingHTTPServer):
    """At a host of either kind of address."""

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)


@contextlib.contextmanager
def running(server: HttpServer, name: str) -> Iterator[int]:
    """Let it serve in a thread of that name while the context lasts; its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
