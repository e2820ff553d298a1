"""The application: routes, what everybody may ask, and the layers around them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trimtab import __version__
from trimtab.core import RealClock, StorageError, TrimtabError
from trimtab.serve.access import Access
from trimtab.serve.api import openapi
from trimtab.serve.api.answer import Answer, failed, problem_answer
from trimtab.serve.api.areas import AREAS
from trimtab.serve.api.areas.events import Stream
from trimtab.serve.api.bounds import Bounds
from trimtab.serve.api.call import Parts
from trimtab.serve.api.envelope import Envelope, Figures
from trimtab.serve.api.gate import Gate
from trimtab.serve.api.metrics import exposition
from trimtab.serve.api.switch import Switch
from trimtab.serve.health import HEALTH_PATH
from trimtab.serve.hub import Hub, running
from trimtab.serve.problems import HttpError, plain_problem
from trimtab.serve.service import Desk
from trimtab.serve.settings import Settings
from trimtab.store import Store

_THREADS = 48  # of those that wait for the disk, many share one sync of it
_OK = b'{"status":"ok"}'


@dataclass(frozen=True, slots=True)
class Served:
    """The application to serve, FastAPI's own within it (for more pages), and what its requests share."""

    app: Any
    inner: FastAPI
    parts: Parts


def build(
    store: Store,
    settings: Settings | None = None,
    desk: Desk | None = None,
    leads: Callable[[], bool] = bool,
) -> Served:
    """The API over a store; `leads` says whether this process schedules."""
    settings = settings or Settings()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")
    quick = not store.name.startswith("postgresql:")

    async def ask(question: Callable[[], Any]) -> Any:
        if quick:
            return question()
        return await asyncio.get_running_loop().run_in_executor(threads, question)

    access = Access(store, always=settings.tokens == "always")
    host = settings.public_url.partition("://")[2].partition("/")[0]
    gate = Gate(access, settings.rate_limit, frozenset({host} if host else ()))
    parts = Parts(desk or Desk(store, RealClock()), gate, Hub(store, ask), threads, quick)
    figures = Figures()
    inner = _routes(parts)
    _for_everybody(inner, parts)
    if settings.metrics:
        _metrics(inner, parts, figures, leads)
    switch = Switch(inner, [Stream(), *(route for area in AREAS for route in area.router.routes)])
    bounded = Bounds(switch, settings.body_limit)
    return Served(Envelope(bounded, figures, bool(settings.tls_certificate)), inner, parts)


def _routes(parts: Parts) -> FastAPI:
    app = FastAPI(
        title="Trimtab",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lambda app: running(parts.hub),
    )
    app.state.parts = parts
    for area in AREAS:
        app.router.routes.extend(area.router.routes)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, _refused)
    return app


def _for_everybody(app: FastAPI, parts: Parts) -> None:
    async def health(request: Request) -> Response:
        return Response(_OK, media_type="application/json")

    async def ready(request: Request) -> Response:
        try:
            parts.gate.admit_anybody(request.scope)
            await asyncio.get_running_loop().run_in_executor(parts.threads, parts.desk.store.events.newest)
        except StorageError:
            return _response(problem_answer(plain_problem(503, "the store does not answer")))
        except TrimtabError as error:
            return _response(failed(error, request.scope))
        return Response(_OK, media_type="application/json")

    async def described(request: Request) -> Response:
        return _response(Answer(200, await asyncio.to_thread(_document, app)))

    for path in (HEALTH_PATH, "/v1/health"):
        app.add_route(path, health, methods=["GET"])
    app.add_route("/v1/ready", ready, methods=["GET"])
    app.add_route("/v1/openapi.json", described, methods=["GET"])


def _document(app: FastAPI) -> bytes:
    import orjson

    return orjson.dumps(app.openapi())


def _metrics(app: FastAPI, parts: Parts, figures: Figures, leading: Callable[[], bool]) -> None:
    async def metrics(request: Request) -> Response:
        try:
            parts.gate.admit(request.scope).require("metrics", fleet=True)
        except TrimtabError as error:
            return _response(failed(error, request.scope))
        text = exposition(figures, parts.hub.listeners, leading())
        return Response(text, media_type="text/plain; version=0.0.4")

    app.add_route("/metrics", metrics, methods=["GET"])


async def _refused(request: Request, error: Exception) -> Response:
    """Paths and methods that there are not."""
    assert isinstance(error, HTTPException)
    said = {404: "there is nothing under this path", 405: "this cannot be done with this path"}
    headers = tuple((error.headers or {}).items())
    told = HttpError(error.status_code, said.get(error.status_code, str(error.detail)), headers)
    return _response(failed(told, request.scope))


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    return response
