"""The HTTP server: uvicorn in a thread of its own, reachable by other machines once a token exists."""

import asyncio
import http.client
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError, is_loopback, split_address
from trimtab.serve.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    from trimtab.serve.http import Application
    from trimtab.serve.processes.scheduler import SchedulerProcess
    from trimtab.store import Store

log = logging.getLogger("trimtab.serve")

HEALTH_PATH = "/healthz"
"""Answers 200 to anybody while the service lives; tells nothing else."""

LARGEST_HEAD = 64 << 10
"""Bytes of a request's head, of a chunk's header or of trailers; longer ones are refused with 400."""

_NEEDED = ("fastapi", "uvicorn", "uvloop", "h11", "orjson")
_DASHBOARD_NEEDED = ("nicegui",)
_SHUTDOWN = 10  # s for answers to end when the server stops
_MOST_CONNECTIONS = 8192  # more are answered with 503
_SWITCH_INTERVAL = 0.001  # s after which a thread that computes lets the one in that answers
_BACKLOG = 2048
_HEALTH_TIMEOUT = 2.0  # s
_TOKEN_POLL = 0.1  # s
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104 # it is compared with, not bound


def require_installed(settings: Settings) -> None:
    """Raise where a package that the API needs is not installed."""
    needed = (*_NEEDED, *(_DASHBOARD_NEEDED if settings.dashboard else ()))
    missing = [name for name in needed if not find_spec(name)]
    if missing:
        raise MissingDependencyError(
            f"the API needs {', '.join(missing)}; pip install 'trimtab[serve]', or leave it out with --no-api"
        )


@contextmanager
def serving(store: "Store", settings: Settings, scheduler: "SchedulerProcess") -> Iterator[str]:
    """Serve the API while the block runs, once the scheduler has started; its URL."""
    require_installed(settings)
    from trimtab.serve.http import Application
    from trimtab.serve.processes.writer import writer_process

    with ExitStack() as stack:
        # Writes to PostgreSQL wait for a network and not for the interpreter's lock, so threads do them.
        writer = stack.enter_context(writer_process(settings)) if store.is_file else None
        application = Application(store, settings, leads=scheduler.leads, writer=writer)
        scheduler.wait()
        server = stack.enter_context(listening(application, settings))
        host = settings.listen.rpartition(":")[0]
        yield f"{'https' if settings.tls_certificate else 'http'}://{host}:{server.port}"


class HttpServer:
    """Uvicorn at the address of the settings, or at loopback until the first token is made.

    `port` is where it listens. When the token exists, a second uvicorn server on the same application listens
    at the wanted address beside the first, so that no connection is broken.
    """

    def __init__(self, application: "Application", settings: Settings) -> None:
        import uvicorn

        self._application = application
        self._settings = settings
        self._host, port = split_address(settings.listen)
        self._waits = not is_loopback(self._host) and application.gate.access.open_here
        if self._waits:
            _bound(
                self._host, port
            ).close()  # a shared port would not be refused where another program has it
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
                "only this machine is listened to until there is a token; trimtab access make NAME makes one"
            )

    def stop(self) -> None:
        """Send answers that are on their way, end streams, and stop."""
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
            return await self._application.ask(lambda: not access.open_here)
        except TrimtabError:
            return False  # the store cannot be used now; the next poll tries again

    def _open_to_others(self, tasks: asyncio.TaskGroup) -> None:
        import uvicorn

        try:
            wanted = _bound(self._host, self.port, shared=True)
        except TrimtabError as error:
            log.error("%s", error)
            return
        self._servers.append(uvicorn.Server(self._config))
        tasks.create_task(self._servers[-1].serve([wanted]))
        log.info("there is a token now: listening at %s", self._settings.listen)


@contextmanager
def listening(application: "Application", settings: Settings) -> Iterator[HttpServer]:
    """Serve while the block runs."""
    server = HttpServer(application, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def server_config(application: "Application", settings: Settings) -> "uvicorn.Config":
    """Uvicorn's configuration. Its h11 parser bounds heads, chunk headers and trailers."""
    import uvicorn

    config = uvicorn.Config(
        application.app,
        http="h11",
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
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInputError(
            f"the certificate {settings.tls_certificate} with its key cannot be used: {why}"
        ) from None
    return config


def _bound(host: str, port: int, shared: bool = False) -> socket.socket:
    """A socket that listens at an address; a `shared` port can be listened at by this user's sockets only."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=shared)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInputError(
            f"cannot listen at {host}:{port}: {why}; name another address with --listen"
        ) from None


class NotServingError(TrimtabError):
    """No server answers at the address of the settings."""


def check_serving(settings: Settings) -> None:
    """Raise NotServingError unless the server of the settings answers with 200."""
    host, port = split_address(settings.listen)
    host = _LOOPBACK.get(host, host)
    connection: http.client.HTTPConnection
    if settings.tls_certificate:
        # It asks itself: the certificate is for the name by which others know it.
        context = ssl._create_unverified_context()  # nosec B323 # it is told nothing, and asked for a status
        connection = http.client.HTTPSConnection(host, port, timeout=_HEALTH_TIMEOUT, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_HEALTH_TIMEOUT)
    try:
        connection.request("GET", HEALTH_PATH)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        why = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
        raise NotServingError(
            f"nothing serves at {settings.listen}: {why}; start it with trimtab up"
        ) from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise NotServingError(f"what serves at {settings.listen} answers {status} to {HEALTH_PATH}, not 200")
