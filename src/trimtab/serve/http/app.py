"""The application: routes, and the layers around them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trimtab.core import RealClock
from trimtab.serve.access import Access
from trimtab.serve.http.areas import AREAS
from trimtab.serve.http.areas.events import Stream
from trimtab.serve.http.bounds import Bounds
from trimtab.serve.http.call import Parts
from trimtab.serve.http.envelope import Envelope, Figures
from trimtab.serve.http.gate import Gate
from trimtab.serve.http.open_routes import open_routes
from trimtab.serve.http.switch import Switch
from trimtab.serve.http.writer import Writer
from trimtab.serve.hub import Hub, running
from trimtab.serve.operations import Desk
from trimtab.serve.settings import Settings
from trimtab.store import Store

_THREADS = 48  # of those that wait for the disk, many share one sync of it


@dataclass(frozen=True, slots=True)
class Served:
    """The ASGI application, which has to be `running` while it is served, and what its requests share."""

    app: Any
    parts: Parts
    pages: Any = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Events are followed, and pages are ready."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(running(self.parts.hub))
            if self.parts.writer is not None:
                stack.enter_context(self.parts.writer.answering())
            if self.pages is not None:
                await stack.enter_async_context(self.pages.running())
            try:
                yield
            finally:
                self.parts.threads.shutdown(wait=False, cancel_futures=True)


def build(
    store: Store,
    settings: Settings | None = None,
    desk: Desk | None = None,
    leads: Callable[[], bool] = bool,
    writer: Writer | None = None,
) -> Served:
    """The API over a store, and the dashboard where it is wanted.

    `leads`: whether this system schedules; `writer` does short writes in a process of its own.
    """
    settings = settings or Settings(dashboard=False)
    parts = parts_of(store, settings, desk, writer)
    figures = Figures()
    pages = _pages(parts, settings) if settings.dashboard else None
    own = open_routes(figures if settings.metrics else None, leads)
    switch = Switch([Stream(), *routes(), *own], parts, pages)
    bounded = Bounds(switch, settings.body_limit)
    return Served(Envelope(bounded, figures, bool(settings.tls_certificate)), parts, pages)


def routes() -> list[Any]:
    """Every operation's route."""
    return [route for area in AREAS for route in area.router.routes]


def parts_of(
    store: Store, settings: Settings, desk: Desk | None = None, writer: Writer | None = None
) -> Parts:
    """What requests share."""
    desk = desk or Desk(store, RealClock())
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="api")
    quick = store.is_file

    async def ask(question: Callable[[], Any]) -> Any:
        if quick:
            return question()
        return await asyncio.get_running_loop().run_in_executor(threads, question)

    access = Access(store, always=settings.tokens == "always")
    gate = Gate(access, settings.rate_limit, _hosts(settings))
    return Parts(desk, gate, Hub(store, ask), threads, quick, writer)


def _pages(parts: Parts, settings: Settings) -> Any:
    from trimtab.serve.dashboard import Dashboard

    secure = bool(settings.tls_certificate) or settings.public_url.startswith("https:")
    return Dashboard(parts.desk, parts.gate.access, parts.hub, secure, _hosts(settings))


def _hosts(settings: Settings) -> frozenset[str]:
    host = settings.public_url.partition("://")[2].partition("/")[0]
    return frozenset({host} if host else ())
