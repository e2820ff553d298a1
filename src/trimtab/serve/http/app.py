"""The ASGI application: a Starlette route for every path of the operations, and what is around them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

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

from trimtab.core import StorageError
from trimtab.serve.access import Access
from trimtab.serve.http.answer import Answer, reply
from trimtab.serve.http.endpoint import USED_HEADERS, Call, Endpoint, endpoints
from trimtab.serve.http.gate import Gate
from trimtab.serve.http.middleware import RequestMetrics, RequestMiddleware
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

_THREADS = 48  # many that wait for the disk share one sync of it
_OK = b'{"status":"ok"}'

T = TypeVar("T")


class Application:
    """The API over a store, and the dashboard where it is wanted; `app` is to be served while `running`.

    `leads`: whether this system's scheduler is the leader. `writer` does short writes in its own process.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        leads: Callable[[], bool] = bool,
        writer: "Writer | None" = None,
    ) -> None:
        settings = settings or Settings(dashboard=False)
        self.backend = Backend(store, learner=OutcomeLearner())
        self.writer = writer
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")
        host = settings.public_url.partition("://")[2].partition("/")[0]
        hosts = frozenset({host} if host else ())
        self.gate = Gate(Access(store, always=settings.tokens == "always"), settings.rate_limit, hosts)
        self.hub = Hub(store, self.ask)
        self.pages = self._dashboard(settings, hosts) if settings.dashboard else None
        registry = CollectorRegistry()
        around = Middleware(
            RequestMiddleware,
            metrics=RequestMetrics(registry),
            tls=bool(settings.tls_certificate),
            largest=settings.body_limit,
        )
        self.app = Starlette(
            routes=self._routes(registry if settings.metrics else None, leads),
            middleware=[around],
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
                self.threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: Callable[[], T]) -> T:
        """Result of a short query of the store: at once from a file, in a thread from a database server."""
        if self.backend.store.is_file:
            return question()
        return await self.in_thread(question)

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Result of what may take long."""
        return asyncio.get_running_loop().run_in_executor(self.threads, work)

    def _dashboard(self, settings: Settings, hosts: frozenset[str]) -> Any:
        from trimtab.serve.dashboard import Dashboard

        secure = bool(settings.tls_certificate) or settings.public_url.startswith("https:")
        return Dashboard(self.backend, self.gate.access, self.hub, secure, hosts)

    def _routes(self, registry: CollectorRegistry | None, leads: Callable[[], bool]) -> list[BaseRoute]:
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints().values():
            by_path.setdefault(endpoint.operation.path, {})[endpoint.operation.method] = endpoint
        # A path that is written out comes before one with a parameter in the same place.
        paths = sorted(by_path, key=lambda path: path.count("{"))
        routes: list[BaseRoute] = [
            Route(STREAM_PATH, EventStream(self.hub, self.gate, self.ask), methods=["GET"])
        ]
        routes += [Route(path, Resource(self, by_path[path]), methods=[*by_path[path]]) for path in paths]
        routes += [Route(path, _healthy) for path in (HEALTH_PATH, "/v1/health")]
        routes += [Route("/v1/ready", self._ready), Route("/v1/openapi.json", _described)]
        if registry is not None:
            routes.append(Route("/metrics", self._metrics(registry, leads)))
        if self.pages is not None:
            # Whatever is under /v1 belongs to the API.
            routes += [Route("/v1/{rest:path}", _not_found), WebSocketRoute("/v1/{rest:path}", _no_websocket)]
            routes.append(Mount("/", self.pages))
        return routes

    def _ready(self, request: Request) -> Response:
        self.gate.admit_anybody(request.scope)
        try:
            self.backend.store.events.newest()
        except StorageError:
            raise HttpError(503, "the store does not answer") from None
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


class Resource:
    """ASGI application of one path: carries out the operation of the request's method."""

    def __init__(self, application: Application, methods: Mapping[str, Endpoint]) -> None:
        self._application = application
        self._methods = methods

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        application, method = self._application, scope["method"]
        endpoint = self._methods["GET" if method == "HEAD" else method]
        principal = await application.ask(lambda: application.gate.admit(scope))
        headers = {name: value for name, value in scope["headers"] if name in USED_HEADERS}
        call = Call(
            scope["trimtab.id"],
            principal,
            method,
            scope["path"],
            scope["path_params"],
            scope["query_string"],
            {name: value.decode("latin-1") for name, value in headers.items()},
            await _json_body(scope, receive) if endpoint.has_body else b"",
        )
        await reply(send, await self._answer(endpoint, call, scope))

    async def _answer(self, endpoint: Endpoint, call: Call, scope: Any) -> Answer:
        """Reads of a file answer at once, short writes in the writer's process, all else in a thread."""
        application, operation = self._application, endpoint.operation
        backend, writer = application.backend, application.writer
        if not operation.writes:
            if not operation.slow and backend.store.is_file:
                return endpoint.read(backend, call)
            return await application.in_thread(lambda: endpoint.read(backend, call))
        if not operation.slow and writer is not None and writer.connected:
            done = await writer.write(operation.id, call)
            if done.why is not None:
                scope["trimtab.why"] = done.why
            return done.answer
        return await application.in_thread(lambda: endpoint.write(backend, call))


async def _json_body(scope: Any, receive: Any) -> bytes:
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(415, "the body should be JSON, with Content-Type: application/json")
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "the request ended before its body did")
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


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
    details = {404: "there is nothing under this path", 405: "this cannot be done with this path"}
    raise HttpError(error.status_code, details.get(error.status_code, error.detail), headers)
