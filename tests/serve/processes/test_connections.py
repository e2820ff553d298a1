"""Open connections of one client are bounded, and those of others are not affected."""

import asyncio
import http.client
import socket
from contextlib import ExitStack

import pytest

from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import ConnectionLimit, listening
from trimtab.serve.settings import Settings
from trimtab.store import Store


def healthy(port: int, source: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30, source_address=(source, 0))
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (ConnectionError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_idle_connections_of_one_client_keep_no_other_out(store: Store) -> None:
    settings = Settings(listen="127.0.0.1:0", dashboard=False, connections_per_client=20)
    with ExitStack() as stack, listening(HttpApplication(store, settings), settings) as server:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert not healthy(server.port, "127.0.0.1")
        assert healthy(server.port, "127.0.0.2")
        stack.close()
        while not healthy(server.port, "127.0.0.1"):
            pass  # until the server has noticed that they are closed


class Transport(asyncio.BaseTransport):
    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_a_client_is_an_address_or_a_network_of_64_bits(first: str, second: str, same: bool) -> None:
    limit = ConnectionLimit(1)
    transport = Transport(first)
    assert limit.admit(transport)
    assert limit.admit(Transport(second)) is not same
    transport.closing = True
    assert limit.admit(Transport(first))


def test_without_a_limit_all_are_admitted() -> None:
    limit = ConnectionLimit(0)
    assert all(limit.admit(Transport("10.0.0.1")) for _ in range(10_000))
