"""The controller's side: a gRPC stream for every node, and one decision for all of them every 100 ms.

The period is kept by the monotonic clock. A node is who its certificate says it is. Whoever says something
that cannot be is told why, once, and its stream is closed; the others do not notice.
"""

import asyncio
import logging
import secrets
import threading
from typing import Any

from trimtab.core import Clock, RealClock, StorageError, split_address
from trimtab.resize.link.certificates import Authority
from trimtab.resize.link.fleet import Fleet
from trimtab.resize.link.roster import Seat
from trimtab.resize.link.rpc import grpc
from trimtab.resize.link.wire import MOST_BYTES, Ask, Confirm, Hello, Message, Post, Report, WireError
from trimtab.resize.period import PERIOD

_SERVICE, _NAME = "trimtab.Resize", "Attend"
METHOD = f"/{_SERVICE}/{_NAME}"  # as a client calls it
_MOST_SAID = 10_000  # sentences in the log, whatever is sent
_GREETING = 5.0  # s in which a new stream has to say hello
_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, and not shared
)

log = logging.getLogger(__name__)


class Server:
    """Runs a fleet: streams in, a decision every period, streams out."""

    def __init__(self, fleet: Fleet, authority: Authority, clock: Clock | None = None) -> None:
        self.fleet = fleet
        self.late = 0  # periods that began when the one after should have
        self.lock = threading.Lock()  # around the fleet, for those who look on from another thread
        self._authority = authority
        self._clock = clock or RealClock()
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._said: set[tuple[str, str]] = set()
        self._server: Any = None

    async def start(self, address: str) -> int:
        """Listen at "host:port"; the port, where 0 stands for any."""
        split_address(address)
        handler = grpc.stream_stream_rpc_method_handler(self._attend)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {_NAME: handler}),)
        )
        keys = [(self._authority.server_key, self._authority.server_certificate)]
        credentials = grpc.ssl_server_credentials(keys, self._authority.certificate, require_client_auth=True)
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if not port:
            raise StorageError(
                f"the controller cannot listen at {address}; something else may, or it is not here"
            )
        await self._server.start()
        return int(port)

    async def run(self, ended: asyncio.Event) -> None:
        """Decide every period until `ended`."""
        due = last = self._clock.monotonic()
        while not ended.is_set():
            due += PERIOD
            await _passed(ended, due - self._clock.monotonic())
            now = self._clock.monotonic()
            if now - due >= PERIOD:
                self.late += int((now - due) / PERIOD)
                due = now
            with self.lock:
                self.fleet.decide(max(now - last, 1e-3), now)
            last = now

    async def stop(self) -> None:
        """Close all streams."""
        await self._server.stop(grace=None)

    async def _attend(self, requests: Any, context: Any) -> None:
        """One node's stream, from hello to the end."""
        name, certificate = _identity(context)
        try:
            if not self._authority.knows(name, certificate):
                raise WireError("this certificate has been replaced by another of the same name; join again")
            post = Post(secrets.randbits(63) | 1)
            first = await asyncio.wait_for(context.read(), _GREETING)
            if first is grpc.aio.EOF or not isinstance(post.unpack(first), Hello):
                raise WireError("a stream begins with hello")
            await self._converse(name, post, context)
        except WireError as error:
            self._say_once(name, str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "a stream begins with hello")

    async def _converse(self, name: str, post: Post, context: Any) -> None:
        """Register, then take what comes and send what is in the outbox; a new stream ends the former."""
        there = asyncio.Event()
        with self.lock:
            seat = self.fleet.register(name, post, self._clock.monotonic(), there.set)
        former = self._streams.get(name)
        if former is not None:
            former.cancel()
        reader = asyncio.ensure_future(self._read(seat, context))
        writer = asyncio.ensure_future(_write(seat, there, context))
        self._streams[name] = reader
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not reader.cancelled():
                reader.result()
            elif reader.cancelled():
                raise WireError("this node has another stream now")
        finally:
            seat.wake = _nobody
            reader.cancel()
            writer.cancel()
            if self._streams.get(name) is reader:
                del self._streams[name]

    async def _read(self, seat: Seat, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            message = seat.post.unpack(data)
            with self.lock:
                self._take(seat, message)

    def _take(self, seat: Seat, message: Message) -> None:
        now = self._clock.monotonic()
        if isinstance(message, Report):
            self.fleet.report(seat, message, now)
        elif isinstance(message, Ask):
            self.fleet.ask(seat, message, now)
        elif isinstance(message, Confirm):
            self.fleet.confirm(seat, message, now)
        else:
            raise WireError("agents do not say that")

    def _say_once(self, who: str, sentence: str) -> None:
        if (who, sentence) not in self._said and len(self._said) < _MOST_SAID:
            self._said.add((who, sentence))
            log.warning("%s: %s; its stream is closed", who, sentence)


def _identity(context: Any) -> tuple[str, bytes]:
    """A node's name, and its certificate; TLS has made sure that our authority signed it."""
    told = context.auth_context()
    return told["x509_common_name"][0].decode(), told["x509_pem_cert"][0]


async def _write(seat: Seat, there: asyncio.Event, context: Any) -> None:
    while True:
        await there.wait()
        there.clear()
        while seat.outbox:
            await context.write(seat.outbox.pop(0))


async def _passed(ended: asyncio.Event, seconds: float) -> None:
    """Let time pass, unless it all ends before."""
    if seconds > 0:
        try:
            await asyncio.wait_for(ended.wait(), seconds)
        except TimeoutError:
            return
    else:
        await asyncio.sleep(0)


def _nobody() -> None:
    """Whose stream has ended is not woken."""
