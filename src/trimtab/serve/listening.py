"""The HTTP server, in a thread of its own, at an address that is opened to others once a token exists."""

import asyncio
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trimtab.core import BadInputError, TrimtabError, is_loopback, split_address
from trimtab.serve.eager import begin
from trimtab.serve.garbage import settled
from trimtab.serve.gathering import Gathering
from trimtab.serve.http import STREAM, Served
from trimtab.serve.settings import Settings

log = logging.getLogger("trimtab.serve")

PATIENCE = 10.0
"""Seconds in which the head of a request must have arrived, and those for answers to end when it stops."""

LONGEST_HEAD = 64 << 10
"""Bytes of a request beside its body, after the piece it began in: more are refused, not gathered."""

_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_SWITCH = 0.001  # s after which a thread that computes lets the one in that answers
_BACKLOG = 2048
_OURS = "/v1/"
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104 # it is compared with, not bound


class _Impatient(HttpToolsProtocol):
    """Hangs up on who connects and does not say what they want, or does not stop saying it."""

    _late: asyncio.TimerHandle | None = None
    _deadline: float | None = None
    _beside = 0  # bytes of heads, of chunks' frames and of what follows them

    def connection_made(self, transport: Any) -> None:
        super().connection_made(cast(asyncio.Transport, Gathering(transport, self.loop)))
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._beside += len(data)
        super().data_received(data)
        if self._beside > LONGEST_HEAD and not self.transport.is_closing():
            if self._deadline is not None:  # else an answer may be on its way
                self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body)
        super().on_body(body)

    def on_message_begin(self) -> None:
        self._beside = 0
        self._expect()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._expect(False)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Most reads are answered without waiting for anything, and then need no task."""
        scope = cycle.scope
        if scope["method"] != "GET" or not scope["path"].startswith(_OURS) or scope["path"] == STREAM:
            super()._start_asgi_task(cycle, app)
            return
        task = begin(self.loop, cycle.run_asgi(app))
        if task is not None:
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)

    def _expect(self, more: bool = True) -> None:
        """One timer serves many requests: it looks whether a later deadline was set meanwhile."""
        if not more:
            self._deadline = None
            return
        self._deadline = deadline = self.loop.time() + PATIENCE
        if self._late is None:
            self._late = self.loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._late = None
        if self._deadline is None or self.transport.is_closing():
            return
        if self.loop.time() < self._deadline:
            self._late = self.loop.call_at(self._deadline, self._look)
        else:
            self.transport.close()


class _Server(uvicorn.Server):
    """Serves at one socket after the other, with the same connections."""

    async def leave(self) -> None:
        """Let nobody new in; who is connected stays so."""
        for server in self.servers:
            server.close()
        self.servers.clear()
        await asyncio.sleep(0)

    async def listen_at(self, to: socket.socket) -> None:
        """Let others in there."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            state = self.lifespan.state
            return _Impatient(config=self.config, server_state=self.server_state, app_state=state)

        listening = await loop.create_server(protocol, sock=to, ssl=self.config.ssl, backlog=_BACKLOG)
        self.servers.append(listening)


class Listening:
    """A server at work; `port` is where."""

    def __init__(self, served: Served, settings: Settings) -> None:
        self._served = served
        self._settings = settings
        host, port = split_address(settings.listen)
        self._wanted = host
        self._waits = not is_loopback(host) and served.parts.gate.access.open_here
        self._socket = _bound(_ANYWHERE.get(host, "127.0.0.1") if self._waits else host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(_configuration(served, settings))
        self._ready = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http")

    def start(self) -> None:
        """Returns when it answers."""
        sys.setswitchinterval(_SWITCH)
        settled()
        self._thread.start()
        self._ready.wait()
        if not self._server.started:
            self._thread.join()
            raise TrimtabError("the API could not be started; the log says why")
        if self._waits:
            log.warning(
                "only this machine is listened to until there is a token; trimtab access make NAME makes one"
            )

    def stop(self) -> None:
        """Answers that are on their way are sent, streams end, and nobody new is let in."""
        self._end.set()
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop) as runner:
                runner.run(self._serve())
        except Exception:
            log.exception("the API ended")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with self._served.running():
            watching = asyncio.create_task(self._watch())
            try:
                await self._server.serve([self._socket])
            finally:
                watching.cancel()

    async def _watch(self) -> None:
        """Says when it is ready, opens it to others when the first token is there, and ends streams."""
        while not self._server.started:
            await asyncio.sleep(0.005)
        self._ready.set()
        while not self._end.is_set():
            if self._waits and await self._has_token():
                self._waits = False
                await self._open_up()
            await asyncio.sleep(0.1)
        self._served.parts.hub.close()

    async def _has_token(self) -> bool:
        parts = self._served.parts
        try:
            return await parts.ask(lambda: not parts.gate.access.open_here)
        except TrimtabError:
            return False  # the store is away; it is asked again

    async def _open_up(self) -> None:
        """Listen where it was wanted; the port is free only once nobody listens at it on this machine."""
        here = self._socket.getsockname()[0]
        await self._server.leave()
        self._socket.close()
        try:
            self._socket = _bound(self._wanted, self.port)
            log.info("there is a token now: listening at %s", self._settings.listen)
        except TrimtabError as error:
            log.error("%s", error)
            self._socket = _bound(here, self.port)
        await self._server.listen_at(self._socket)


@contextmanager
def listening(served: Served, settings: Settings) -> Iterator[Listening]:
    """Serve while the block runs."""
    server = Listening(served, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _configuration(served: Served, settings: Settings) -> uvicorn.Config:
    config = uvicorn.Config(
        served.app,
        http=_Impatient,
        ws="websockets-sansio" if settings.dashboard else "none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(PATIENCE),
        backlog=_BACKLOG,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInputError(
            f"the certificate {settings.tls_certificate} with its key cannot be used: {why}"
        ) from None
    return config


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInputError(
            f"cannot listen at {host}:{port}: {why}; name another address with --listen"
        ) from None


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
