"""The least of HTTP/2 that a gRPC stream needs, over TLS, in one thread: so that hundreds of simulated agents
take little of the machine on which a controller is measured.

A frame is its length (3 bytes), type, flags and stream (4 bytes), then its content (RFC 9113, section 4.1).
In DATA frames a message is a zero byte, its length (4 bytes) and itself. Windows for what we hear are opened
wide at once, so none has to be widened later.
"""

import socket
import ssl
import struct
from pathlib import Path

from trimtab.core import TrimtabError
from trimtab.resize.link.joining import Membership

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _RESET, _SETTINGS, _PING, _GOODBYE, _WINDOW = 0, 3, 4, 6, 7, 8
_HEADERS = 1
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_STREAM = 1
_WIDE = 2**30  # bytes
_INITIAL_WINDOW = 0x4  # the setting's name
_USUAL_WINDOW = 65_535  # bytes
_LARGEST = 16_384  # bytes of content in a frame
_PATIENCE = 10.0  # s to connect


class LightStream:
    """A stream to a controller: messages out at once, messages in as far as they have come."""

    def __init__(self, membership: Membership, folder: Path, path: str) -> None:
        """`folder` is for the node's keys, which TLS reads from files; `path` names the method."""
        folder.mkdir()
        (folder / "node.pem").write_bytes(membership.certificate + membership.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # the authority signs one controller only
        context.load_verify_locations(cadata=membership.authority.decode())
        context.load_cert_chain(folder / "node.pem")
        context.set_alpn_protocols(["h2"])
        host, _, port = membership.address.rpartition(":")
        plain = socket.create_connection((host, int(port)), _PATIENCE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain)
        self._raw = bytearray()  # frames that are not whole yet
        self._body = bytearray()  # messages that are not whole yet
        self._window = {0: _USUAL_WINDOW, _STREAM: _USUAL_WINDOW}  # bytes that we may still send
        self._usual = _USUAL_WINDOW
        self._send(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, _WIDE))
            + _frame(_WINDOW, 0, 0, struct.pack(">I", _WIDE))
            + _frame(_HEADERS, _END_HEADERS, _STREAM, _headers(path, membership.address))
        )

    def fileno(self) -> int:
        """For whoever waits."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def do_not_wait(self) -> None:
        """From now on `hear` comes back with what is there, and be it nothing."""
        self._socket.setblocking(False)

    def send(self, message: bytes) -> None:
        """Send it."""
        content = b"\0" + struct.pack(">I", len(message)) + message
        for name in self._window:
            self._window[name] -= len(content)
        if min(self._window.values()) < 0:
            raise TrimtabError("the controller does not take what agents say")
        parts = (content[at : at + _LARGEST] for at in range(0, len(content), _LARGEST))
        self._send(b"".join(_frame(_DATA, 0, _STREAM, part) for part in parts))

    def receive(self) -> list[bytes]:
        """The messages that have come."""
        try:
            while chunk := self._socket.recv(65536):
                self._raw += chunk
                if self._socket.gettimeout() is not None and not self._socket.pending():
                    break
            else:
                raise TrimtabError("the controller has closed the stream")
        except (ssl.SSLWantReadError, BlockingIOError):
            pass
        except OSError:
            raise TrimtabError("the controller has closed the stream") from None
        self._take_frames()
        return self._messages()

    def _take_frames(self) -> None:
        at = 0
        while len(self._raw) >= at + 9:
            length = int.from_bytes(self._raw[at : at + 3], "big")
            if len(self._raw) < at + 9 + length:
                break
            kind, flags = self._raw[at + 3], self._raw[at + 4]
            stream = int.from_bytes(self._raw[at + 5 : at + 9], "big")
            self._take(kind, flags, stream, bytes(self._raw[at + 9 : at + 9 + length]))
            at += 9 + length
        del self._raw[:at]

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == _DATA:
            self._body += content
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(content)
            self._send(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, content))
        elif kind == _WINDOW:
            self._window[stream] += int.from_bytes(content, "big")
        elif kind in (_RESET, _GOODBYE) or (kind == _HEADERS and flags & _END_STREAM):
            raise TrimtabError("the controller has closed the stream")

    def _set(self, content: bytes) -> None:
        """What the other side says of itself; of interest is how much it takes at first."""
        for name, value in struct.iter_unpack(">HI", content):
            if name == _INITIAL_WINDOW:
                self._window[_STREAM] += value - self._usual
                self._usual = value

    def _messages(self) -> list[bytes]:
        found, at = [], 0
        while len(self._body) >= at + 5:
            length = int.from_bytes(self._body[at + 1 : at + 5], "big")
            if len(self._body) < at + 5 + length:
                break
            found.append(bytes(self._body[at + 5 : at + 5 + length]))
            at += 5 + length
        del self._body[:at]
        return found

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            raise TrimtabError("the controller has closed the stream, or does not listen") from None


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + content


def _headers(path: str, authority: str) -> bytes:
    """The request's header fields, none of them to be remembered (RFC 7541, section 6.2.2): the usual ones by
    their number in its table, the path and so on as text."""
    return b"".join(
        (
            b"\x83\x87",  # :method POST, :scheme https
            b"\x04" + _text(path),
            b"\x01" + _text(authority),
            b"\x0f\x10" + _text("application/grpc"),  # content-type
            b"\x00" + _text("te") + _text("trailers"),
        )
    )


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()
