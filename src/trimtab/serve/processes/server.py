"""The HTTP server: uvicorn in a thread of its own, reachable by other machines once a token exists."""

import asyncio
import http.client
import ipaddress
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError, is_loopback, split_address
from trimtab.serve.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    from trimtab.serve.http import HttpApplication
    from trimtab.serve.processes.scheduler import SchedulerProcess
    from trimtab.store import Store

log = logging.getLogger("trimtab.serve")

HEALTH_PATH = "/healthz"
"""Answers 200 to anybody while the server runs."""

LARGEST_HEAD = 64 << 10
"""Bytes of a request's head, of a chunk's header or of trailers; longer ones are refused with 400."""

_NEEDED = ("fastapi", "uvicorn", "uvloop", "h11", "orjson")
_DASHBOARD_NEEDED = ("nicegui",)
_SHUTDOWN = 10  # s for answers to end when the server stops
_MOST_CONNECTIONS = 8192  # more are answered with 503
_SWITCH_INTERVAL = 0.001  # s after which a computing thread yields to the one that answers
_BACKLOG = 2048
_WARNING_INTERVAL = 60.0  # s between two warnings about one client
_HEALTH_TIMEOUT = 2.0  # s
_TOKEN_POLL = 0.1  # s
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104 # compared with, not bound


def require_installed(settings: Settings) -> None:
    """Raise if a package that the API needs is not installed."""
    needed = (*_NEEDED, *(_DASHBOARD_NEEDED if settings.dashboard else ()))
    missing = [name for name in needed if not find_spec(name)]
    if missing:
        raise MissingDependencyError(
            f"the API needs {', '.join(missing)}; pip install 'trimtab[serve]', or leave it out with --no-api"
        )


@contextmanager
def serving(store: "Store", settings: Settings, scheduler: "SchedulerProcess") -> Iterator[str]:
    """Serve the API while the block runs, once the scheduler has started; yields its URL."""
    require_installed(settings)
    from trimtab.serve.http import HttpApplication
    from trimtab.serve.processes.writer import writer_process

    with ExitStack() as stack:
        # Writes to PostgreSQL wait for a network and not for the interpreter's lock, so threads do them.
        writer = stack.enter_context(writer_process(settings)) if store.is_file else None
        application = HttpApplication(store, settings, scheduler.leads, writer, scheduler.round_seconds)
        scheduler.wait()
        server = stack.enter_context(listening(application, settings))
        host = settings.listen.rpartition(":")[0]
        yield f"{'https' if settings.tls_certificate else 'http'}://{host}:{server.port}"


class HttpServer:
    """Uvicorn at the address of the settings, or at loopback until the first token is made.

    When the token exists, a second uvicorn server on the same application listens at the address of the
    settings beside the first, so that no connection is broken.
    """

    def __init__(self, application: "HttpApplication", settings: Settings) -> None:
        import uvicorn

        self._application = application
        self._settings = settings
        self._host, port = split_address(settings.listen)
        self._waits = not is_loopback(self._host) and application.gate.access.open_here
        if self._waits:
            # A shared port would not be refused if another program has it.
            _bound(self._host, port).close()
        first = _LOOPBACK.get(self._host, "127.0.0.1") if self._waits else self._host
        self._socket = _bound(first, port, shared=self._waits)
        self.port: int = self._socket.getsockname()[1]
        self._config = server_config(application, settings)
        self._servers = [uvicorn.Server(self._config)]
        self._ready = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http")

    def start(self) -> None:
        """Start the thread; returns when the server answers."""
        sys.setswitchinterval(_SWITCH_INTERVAL)
        self._thread.start()
        self._ready.wait()
        if not self._servers[0].started:
            self._thread.join()
            raise TrimtabError("the API could not be started; the log says why")
        if self._waits:
            log.warning(
                "only this machine is served until there is a token; trimtab access make NAME makes one"
            )

    def stop(self) -> None:
        """Finish answers, end streams, and stop."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except Exception:
            log.exception("the API ended")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with self._application.running(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._servers[0].serve([self._socket]))
            while not self._servers[0].started:
                await asyncio.sleep(0.005)
            self._ready.set()
            while not self._end.is_set():
                if self._waits and await self._has_token():
                    self._waits = False
                    self._open_to_others(tasks)
                await asyncio.sleep(_TOKEN_POLL)
            self._application.hub.close()
            for server in self._servers:
                server.should_exit = True

    async def _has_token(self) -> bool:
        access = self._application.gate.access
        try:
            return await self._application.workers.ask(lambda: not access.open_here)
        except TrimtabError:
            return False  # the store cannot be used now; the next poll tries again

    def _open_to_others(self, tasks: asyncio.TaskGroup) -> None:
        import uvicorn

        try:
            listener = _bound(self._host, self.port, shared=True)
        except TrimtabError as error:
            log.error("%s", error)
            return
        self._servers.append(uvicorn.Server(self._config))
        tasks.create_task(self._servers[-1].serve([listener]))
        log.info("there is a token now: listening at %s", self._settings.listen)


@contextmanager
def listening(application: "HttpApplication", settings: Settings) -> Iterator[HttpServer]:
    server = HttpServer(application, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class ConnectionLimit:
    """Bounds the open connections of each client: an IPv4 address, or the /64 network of an IPv6 address."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, list[asyncio.BaseTransport]] = {}
        self._warned: dict[str, float] = {}

    def admit(self, transport: asyncio.BaseTransport) -> bool:
        """Count a new connection; whether the client may have it. 0 is no limit."""
        if self._most == 0:
            return True
        client = _client((transport.get_extra_info("peername") or ("",))[0])
        connections = self._open.setdefault(client, [])
        if len(connections) >= self._most:
            connections[:] = self._still_open(client)
        if len(connections) >= self._most:
            self._warn(client)
            return False
        connections.append(transport)
        if len(self._open) > _MOST_CONNECTIONS:
            self._open = {known: still for known in self._open if (still := self._still_open(known))}
        return True

    def _still_open(self, client: str) -> list[asyncio.BaseTransport]:
        return [connection for connection in self._open[client] if not connection.is_closing()]

    def _warn(self, client: str) -> None:
        now = time.monotonic()
        if now - self._warned.get(client, float("-inf")) >= _WARNING_INTERVAL:
            if len(self._warned) > _MOST_CONNECTIONS:
                self._warned.clear()
            self._warned[client] = now
            log.warning("%s has %d open connections, and gets no more now", client, self._most)


@lru_cache(maxsize=4096)
def _client(address: str) -> str:
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    return str(known.ipv4_mapped or ipaddress.ip_network((known, 64), strict=False))


def limited_protocol(limit: ConnectionLimit) -> "type[asyncio.Protocol]":
    """Uvicorn's HTTP/1.1 protocol that closes connections beyond a client's limit at once."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class LimitedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if not limit.admit(transport):
                transport.abort()

    return LimitedProtocol


def server_config(application: "HttpApplication", settings: Settings) -> "uvicorn.Config":
    """Uvicorn's configuration. Its h11 parser bounds heads, chunk headers and trailers."""
    import uvicorn

    config = uvicorn.Config(
        application.app,
        http=limited_protocol(ConnectionLimit(settings.connections_per_client)),
        h11_max_incomplete_event_size=LARGEST_HEAD,
        ws="websockets-sansio" if settings.dashboard else "none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN,
        backlog=_BACKLOG,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInputError(
            f"the certificate {settings.tls_certificate} with its key cannot be used: {reason}"
        ) from None
    return config


def _bound(host: str, port: int, shared: bool = False) -> socket.socket:
    """A socket that listens at an address; a `shared` port can be listened at by this user's sockets only."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=shared)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInputError(
            f"cannot listen at {host}:{port}: {reason}; name another address with --listen"
        ) from None


class NotServingError(TrimtabError):
    """No server answers at the address of the settings."""


def check_serving(settings: Settings) -> None:
    """Raise NotServingError unless the server of the settings answers with 200."""
    host, port = split_address(settings.listen)
    host = _LOOPBACK.get(host, host)
    connection: http.client.HTTPConnection
    if settings.tls_certificate:
        # It asks itself: the certificate is for the name that others use.
        context = ssl._create_unverified_context()  # nosec B323 # only a status is read, and nothing sent
        connection = http.client.HTTPSConnection(host, port, timeout=_HEALTH_TIMEOUT, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_HEALTH_TIMEOUT)
    try:
        connection.request("GET", HEALTH_PATH)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
        raise NotServingError(
            f"nothing serves at {settings.listen}: {reason}; start it with trimtab up"
        ) from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise NotServingError(f"the server at {settings.listen} answers {status} to {HEALTH_PATH}, not 200")
