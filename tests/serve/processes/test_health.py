"""Asking a Trimtab whether it serves, at a real server on loopback."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from trimtab.serve import HEALTH_PATH, NotServingError, Settings, check_serving


class Handler(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == HEALTH_PATH else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_one_that_answers_serves_also_when_it_listens_everywhere(server: http.server.HTTPServer) -> None:
    check_serving(Settings(listen=f"127.0.0.1:{server.server_port}"))
    check_serving(Settings(listen=f"0.0.0.0:{server.server_port}", insecure=True))


def test_one_that_answers_otherwise_does_not(
    server: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "status", 503)
    with pytest.raises(NotServingError, match="503"):
        check_serving(Settings(listen=f"127.0.0.1:{server.server_port}"))


def test_where_nobody_listens_nobody_serves(server: http.server.HTTPServer) -> None:
    port = server.server_port
    with pytest.raises(NotServingError, match=r"\d+\.\d+\.\d+\.\d+:\d+"):
        check_serving(Settings(listen=f"127.0.0.2:{port}"))
    with pytest.raises(NotServingError, match=r"\d+\.\d+\.\d+\.\d+:\d+"):  # it speaks no TLS
        check_serving(Settings(listen=f"127.0.0.1:{port}", tls_certificate="c", tls_key="k"))
