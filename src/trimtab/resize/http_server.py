"""Small HTTP servers in a background thread."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class BackgroundHttpServer(ThreadingHTTPServer):
    """Listens at an IPv4 or IPv6 address."""

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)


@contextlib.contextmanager
def running(server: BackgroundHttpServer, name: str) -> Iterator[int]:
    """Serve in a thread of that name while the context lasts; yields the port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
