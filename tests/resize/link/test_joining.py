"""Joining over real TLS: a token gets one certificate, and a stranger gets none of our secrets."""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.core import BadInputError, NotFoundError, StorageError
from trimtab.resize.link.certificates import Authority, JoinToken, JoinTokens
from trimtab.resize.link.joining import Membership, join, join_server


class Place:
    """A join server, and tokens for it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.authority = Authority(folder)
        self.tokens = JoinTokens(folder / "tokens.json")
        self.port = port

    def token(self) -> JoinToken:
        return JoinToken(f"127.0.0.1:{self.port}", self.authority.fingerprint, self.tokens.new())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "controller", 0)
    with join_server("127.0.0.1:0", made.authority, made.tokens, 7433) as port:
        made.port = port
        yield made


def test_a_node_joins_and_keeps_what_it_got(place: Place, tmp_path: Path) -> None:
    member = join(place.token(), "node-1")
    assert (member.node, member.address) == ("node-1", "127.0.0.1:7433")
    assert place.authority.knows("node-1", member.certificate)
    member.write(tmp_path / "agent")
    assert Membership.read(tmp_path / "agent") == member
    assert (tmp_path / "agent" / "node.key").stat().st_mode & 0o777 == 0o600


def test_a_token_lets_one_node_in(place: Place) -> None:
    token = place.token()
    join(token, "node-1")
    with pytest.raises(BadInputError, match="token"):
        join(token, "node-2")


def test_a_stranger_at_the_address_learns_nothing(place: Place, tmp_path: Path) -> None:
    token = place.token()
    stranger = Authority(tmp_path / "stranger")
    theirs = JoinTokens(tmp_path / "stranger" / "tokens.json")
    with (
        join_server("127.0.0.1:0", stranger, theirs, 1) as port,
        pytest.raises(BadInputError, match=r"127\.0\.0\.1"),
    ):
        join(JoinToken(f"127.0.0.1:{port}", token.fingerprint, token.secret), "node")
    join(token, "node")  # it is still good


def test_nobody_there_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(NotFoundError, match=r"127\.0\.0\.1"):
            join(JoinToken(f"127.0.0.1:{port}", "ab" * 32, "0" * 32), "node")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"secret": 1, "request": 2}', b"x" * 20_000, b"[" * 10_000],
)
def test_nonsense_is_refused_and_the_next_node_joins(place: Place, body: bytes) -> None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", place.port, timeout=10, context=anyone)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError, ssl.SSLError):
        connection.request("POST", "/join", body)
        assert connection.getresponse().status in (400, 403)
    join(place.token(), "node")


def test_a_request_that_is_none_gets_no_certificate(place: Place) -> None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", place.port, timeout=10, context=anyone)
    with contextlib.closing(connection):
        body = json.dumps({"secret": place.tokens.new(), "request": "nothing"})
        connection.request("POST", "/join", body)
        answer = connection.getresponse()
        assert answer.status == 403
        assert b"damaged" in answer.read()


def test_who_speaks_no_tls_and_who_says_nothing_hold_up_nobody(place: Place) -> None:
    with socket.create_connection(("127.0.0.1", place.port)) as plain:
        plain.sendall(b"GET /ca HTTP/1.0\r\n\r\n")
        with socket.create_connection(("127.0.0.1", place.port)):
            join(place.token(), "node")


def test_a_node_that_has_not_joined_is_told_how(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="trimtab agent join"):
        Membership.read(tmp_path)
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises((StorageError, NotFoundError)):
        Membership.read(tmp_path)


def test_a_taken_port_is_one_sentence(place: Place) -> None:
    with (
        pytest.raises(StorageError, match="join"),
        join_server(f"127.0.0.1:{place.port}", place.authority, place.tokens, 1),
    ):
        pass
