"""Joining: a node shows a token and gets a certificate.

The node first fetches the authority's certificate without verification, and trusts it only if its fingerprint
is the token's. It then sends its secret over a connection verified by this certificate. Its own key never
leaves it.
"""

import contextlib
import http.client
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from trimtab.core import (
    BadInputError,
    NotFoundError,
    StorageError,
    TrimtabError,
    split_address,
)
from trimtab.kernel import write_whole
from trimtab.resize.http_server import BackgroundHttpServer, running
from trimtab.resize.link.certificates import (
    CONTROLLER,
    Authority,
    JoinToken,
    JoinTokens,
    fingerprint,
    request_certificate,
    write_secret,
)

_MOST = 16_384  # bytes of a request or an answer
_WAIT = 5.0  # s for the other side to answer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Membership:
    """A joined node's name, the controller's address, and certificates."""

    node: str
    address: str  # "host:port" for the stream
    authority: bytes
    certificate: bytes
    key: bytes

    def write(self, folder: Path) -> None:
        """Write it to a folder; only its owner can read the key."""
        write_secret(folder / "node.key", self.key)
        write_whole(folder / "node.pem", self.certificate)
        write_whole(folder / "authority.pem", self.authority)
        write_whole(folder / "node.json", json.dumps({"node": self.node, "address": self.address}))

    @classmethod
    def read(cls, folder: Path) -> "Membership":
        """The membership in a folder; raises `NotFoundError` where this node has not joined."""
        try:
            data = json.loads((folder / "node.json").read_text(encoding="utf-8"))
            pems = [(folder / name).read_bytes() for name in ("authority.pem", "node.pem", "node.key")]
            split_address(data["address"])
            return cls(str(data["node"]), data["address"], *pems)
        except FileNotFoundError:
            raise NotFoundError(
                "this node has not joined a controller; run trimtab agent join TOKEN with a token that "
                "trimtab up prints, or size this node alone with trimtab agent --pools FILE"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, BadInputError):
            raise StorageError(f"{folder} is damaged; run trimtab agent join with a new token") from None


def issue(authority: Authority, node: str, address: str) -> Membership:
    """A node's membership without a token, for a process that has the authority."""
    key, request = request_certificate(node)
    name, certificate = authority.sign(request)
    return Membership(name, address, authority.certificate, certificate, key)


def join(token: JoinToken, node: str) -> Membership:
    """Request a certificate; `node` is this node's name at the controller."""
    host, _ = split_address(token.address)
    key, request = request_certificate(node)
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    authority = _fetch(token.address, unverified, "GET", "/ca")
    try:
        matches = fingerprint(authority) == token.fingerprint
    except ValueError:
        matches = False
    if not matches:
        raise BadInputError(
            f"the server at {token.address} is not the controller that made this token; no secret was sent"
        )
    verified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verified.load_verify_locations(cadata=authority.decode())
    body = json.dumps({"secret": token.secret, "request": request.decode()}).encode()
    try:
        data = json.loads(_fetch(token.address, verified, "POST", "/join", body))
        port, certificate = int(data["port"]), str(data["certificate"]).encode()
    except (ValueError, KeyError, TypeError):
        raise BadInputError(
            f"the answer of {token.address} is not a controller's; make a new token"
        ) from None
    return Membership(node, f"{bracketed(host)}:{port}", authority, certificate, key)


def _fetch(address: str, context: ssl.SSLContext, method: str, path: str, body: bytes | None = None) -> bytes:
    """The join server's answer; its refusal raises `BadInputError`."""
    connection = _Connection(address, context)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read(_MOST)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NotFoundError(f"no controller answers at {address}: {reason}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise BadInputError(text.decode(errors="replace") or f"the controller refuses: {answer.reason}")
    return text


class _Connection(http.client.HTTPSConnection):
    """Verifies the controller's name in the certificate, not the host's."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        host, port = split_address(address)
        super().__init__(host, port, timeout=_WAIT, context=context)
        self._tls = context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=CONTROLLER)


@contextlib.contextmanager
def join_server(address: str, authority: Authority, tokens: JoinTokens, port: int) -> Iterator[int]:
    """Let nodes join at "host:port" while the context lasts; yields its port.

    `port` is that of the controller's streams.
    """
    host, join_port = split_address(address)
    lock = threading.Lock()

    def signed(data: Any) -> bytes:
        if not isinstance(data, dict) or not all(isinstance(data.get(k), str) for k in ("secret", "request")):
            raise BadInputError("a request to /join needs the strings secret and request")
        with lock:
            tokens.use(data["secret"])
            name, certificate = authority.sign(data["request"].encode())
        log.info("the node %s has joined", name)
        return json.dumps({"port": port, "certificate": certificate.decode()}).encode()

    class JoinHandler(BaseHTTPRequestHandler):
        timeout = _WAIT

        def do_GET(self) -> None:
            if self.path == "/ca":
                self._answer(200, authority.certificate)
            else:
                self._answer(404, b"use /ca or /join")

        def do_POST(self) -> None:
            try:
                length = int(self.headers.get("Content-Length") or 0)
                if self.path != "/join" or not 0 < length <= _MOST:
                    raise BadInputError(f"a request to /join has 1 to {_MOST} bytes")
                self._answer(200, signed(json.loads(self.rfile.read(length))))
            except TrimtabError as error:
                self._answer(403, str(error).encode())
            except (ValueError, RecursionError):
                self._answer(400, b"a request to /join must be JSON")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server_files)
    with running(_JoinServer(host, join_port, JoinHandler, context), "join") as bound:
        yield bound


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _JoinServer(BackgroundHttpServer):
    """Makes every TLS handshake in the connection's thread, so that a slow client does not block others."""

    def __init__(
        self, host: str, port: int, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext
    ) -> None:
        try:
            super().__init__(host, port, handler)
        except OSError as error:
            raise StorageError(f"nodes cannot join at {host}:{port}: {error.strerror}") from None
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log clients that hang up, are slow or use no TLS."""
