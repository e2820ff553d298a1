"""The ASGI application: a Starlette route for every path of the operations, health, metrics and dashboard."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import orjson
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from trimtab.core import StorageError, TrimtabError
from trimtab.serve.access import Access
from trimtab.serve.http.endpoint import Endpoint, Resource, WorkerThreads, endpoints
from trimtab.serve.http.middleware import Gate, RequestMetrics, RequestMiddleware
from trimtab.serve.http.openapi import document
from trimtab.serve.http.stream import EventStream, Hub
from trimtab.serve.operations import Backend, OutcomeLearner
from trimtab.serve.problems import HttpError
from trimtab.serve.processes.server import HEALTH_PATH
from trimtab.serve.settings import Settings
from trimtab.store import Store

if TYPE_CHECKING:
    from trimtab.serve.processes.writer import Writer

STREAM_PATH = "/v1/events/stream"

_OK = b'{"status":"ok"}'
_CHECK_INTERVAL = 1.0  # s between two checks of the store
_CHECK_TIMEOUT = 3.0  # s
_SEARCH_INTERVAL = 10.0  # s between two searches for damaged pages, at least
_SEARCH_SHARE = 0.02  # of the time is spent on searching, at most
_SEARCH_TIMEOUT = 10.0  # s
_FREQUENT = ("jobs", "decisions", "profiles", "events")


class Readiness:
    """Whether the store can be written and read; checked once a second at most, however many ask."""

    def __init__(self, store: Store, workers: WorkerThreads) -> None:
        self._store = store
        self._workers = workers
        self._check: asyncio.Future[TrimtabError | None] | None = None
        self._search: asyncio.Future[None] | None = None
        self._next_check = self._next_search = float("-inf")

    async def require(self) -> None:
        """Raise StorageError unless the last check has found the store usable."""
        now = time.monotonic()
        if self._check is None or (self._check.done() and now >= self._next_check):
            self._next_check = now + _CHECK_INTERVAL
            self._check = asyncio.ensure_future(self._workers.in_thread(self._write))
        if self._search is None or (self._search.done() and now >= self._next_search):
            self._search = asyncio.ensure_future(self._workers.in_thread(self._find_damage))
        check = self._check
        running: set[asyncio.Future[Any]] = {check, self._search}
        await asyncio.wait(running, timeout=_CHECK_TIMEOUT)
        late = StorageError(f"the store has not answered a check for {_CHECK_TIMEOUT:g} s")
        error = self._store.damage or (check.result() if check.done() else late)
        if error is not None:
            raise error

    def _write(self) -> TrimtabError | None:
        try:
            self._store.check_writable()
        except TrimtabError as error:
            return error
        return None

    def _find_damage(self) -> None:
        """Search a file for damaged pages; the store remembers any."""
        began = time.monotonic()
        with contextlib.suppress(TrimtabError):
            self._store.find_damage(_SEARCH_TIMEOUT)
        took = time.monotonic() - began
        self._next_search = began + max(_SEARCH_INTERVAL, took / _SEARCH_SHARE)


class HttpApplication:
    """The API over a store, and the dashboard if the settings want it; serve `app` while `running`.

    `leads`: whether this system's scheduler is the leader. `writer` does short writes in its own process.
    `round_seconds`: of the scheduler's last round, for the metrics.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        leads: Callable[[], bool] = bool,
        writer: "Writer | None" = None,
        round_seconds: Callable[[], float] = float,
    ) -> None:
        settings = settings or Settings(dashboard=False)
        self._learner = OutcomeLearner()
        self.backend = Backend(store, learner=self._learner)
        self.writer = writer
        self.workers = WorkerThreads(store)
        host = settings.public_url.partition("://")[2].partition("/")[0]
        hosts = frozenset({host} if host else ())
        self.gate = Gate(Access(store, always=settings.tokens == "always"), settings.rate_limit, hosts)
        self.hub = Hub(store, self.workers.ask)
        self.readiness = Readiness(store, self.workers)
        self.pages: Any = None
        if settings.dashboard:
            from trimtab.serve.dashboard import Dashboard

            secure = bool(settings.tls_certificate) or settings.public_url.startswith("https:")
            self.pages = Dashboard(self.backend, self.gate.access, self.hub, secure, hosts)
        registry = CollectorRegistry()
        rounds = Gauge("trimtab_round_seconds", "seconds of the scheduler's last round", registry=registry)
        rounds.set_function(round_seconds)
        middleware = Middleware(
            RequestMiddleware,
            metrics=RequestMetrics(registry),
            tls=bool(settings.tls_certificate),
            largest=settings.body_limit,
        )
        self.app = Starlette(
            routes=self._routes(registry if settings.metrics else None, leads),
            middleware=[middleware],
            exception_handlers={HTTPException: _refuse},
        )
        self.app.router.redirect_slashes = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Poll events, talk with the writer, and have pages ready while the block runs."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.hub.running())
            if self.writer is not None:
                stack.enter_context(self.writer.answering())
            if self.pages is not None:
                await stack.enter_async_context(self.pages.running())
            try:
                yield
            finally:
                self.workers.threads.shutdown(wait=False, cancel_futures=True)
                self._learner.close()

    def _routes(self, registry: CollectorRegistry | None, leads: Callable[[], bool]) -> list[BaseRoute]:
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints().values():
            by_path.setdefault(endpoint.operation.path, {})[endpoint.operation.method] = endpoint

        def order(path: str) -> tuple[int, int]:
            # Starlette tries one route after the other: frequent ones first. A path that is written out comes
            # before one with a parameter in the same place.
            area = path.split("/")[2]
            return _FREQUENT.index(area) if area in _FREQUENT else len(_FREQUENT), path.count("{")

        def resource(methods: dict[str, Endpoint]) -> Resource:
            return Resource(methods, self.backend, self.gate, self.workers, self.writer)

        routes: list[BaseRoute] = [
            Route(STREAM_PATH, EventStream(self.hub, self.gate, self.workers.ask), methods=["GET"]),
            *(
                Route(path, resource(by_path[path]), methods=[*by_path[path]])
                for path in sorted(by_path, key=order)
            ),
            *(Route(path, _healthy) for path in (HEALTH_PATH, "/v1/health")),
            Route("/v1/ready", self._ready),
            Route("/v1/openapi.json", _described),
        ]
        if registry is not None:
            routes.append(Route("/metrics", self._metrics(registry, leads)))
        if self.pages is not None:
            # Whatever is under /v1 belongs to the API.
            routes += [Route("/v1/{rest:path}", _not_found), WebSocketRoute("/v1/{rest:path}", _no_websocket)]
            routes.append(Mount("/", self.pages))
        return routes

    async def _ready(self, request: Request) -> Response:
        await self.readiness.require()
        return Response(_OK, media_type="application/json")

    def _metrics(
        self, registry: CollectorRegistry, leads: Callable[[], bool]
    ) -> Callable[[Request], Response]:
        listeners = Gauge("trimtab_event_listeners", "streams of events that are open", registry=registry)
        listeners.set_function(lambda: self.hub.listeners)
        leading = Gauge("trimtab_leading", "whether this system's scheduler is the leader", registry=registry)
        leading.set_function(lambda: float(leads()))

        def metrics(request: Request) -> Response:
            self.gate.admit(request.scope).require("metrics", fleet=True)
            return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

        return metrics


async def _healthy(request: Request) -> Response:
    return Response(_OK, media_type="application/json")


def _described(request: Request) -> Response:
    return Response(orjson.dumps(document()), media_type="application/json")


async def _not_found(request: Request) -> Response:
    raise HTTPException(404)


async def _no_websocket(websocket: WebSocket) -> None:
    await websocket.close(1008)


async def _refuse(request: Request, error: Exception) -> Response:
    """Starlette's refusals (no such path, no such method), for the middleware to answer as a problem."""
    assert isinstance(error, HTTPException)
    headers = tuple(
        (name, ", ".join(sorted(value.split(", ")))) for name, value in (error.headers or {}).items()
    )
    details = {404: "there is nothing under this path", 405: "this path does not have this method"}
    raise HttpError(error.status_code, details.get(error.status_code, error.detail), headers)
