"""The dashboard as one ASGI application: NiceGUI behind `Door`, which admits sessions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from fastapi import FastAPI

from trimtab.serve.access import Access
from trimtab.serve.dashboard.door import Door
from trimtab.serve.dashboard.sessions import SignInSessions
from trimtab.serve.dashboard.visit import Pulse, ResultCache, Tails, Visit
from trimtab.serve.http.stream import Hub
from trimtab.serve.operations import Backend

STATIC = "/static"


class Dashboard:
    """All pages. `secure`: they are reached by TLS; `hosts`: further names of this server."""

    def __init__(
        self,
        backend: Backend,
        access: Access,
        hub: Hub,
        secure: bool = False,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        self._hub, self._pulse = hub, Pulse()
        sessions = SignInSessions(access, backend.clock)
        visit = Visit(backend, sessions, self._pulse, ResultCache(backend.clock), Tails(), "")
        self._door = Door(_pages(), sessions, lambda session: replace(visit, session=session), secure, hosts)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._door(scope, receive, send)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow events and run NiceGUI while the block runs; the hub has to run as well."""
        pages = _pages()
        following = asyncio.create_task(self._pulse.follow(self._hub))
        try:
            async with pages.router.lifespan_context(pages):
                yield
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


@cache
def _pages() -> FastAPI:
    """NiceGUI with all pages, once for the process; each request brings its own visit."""
    from nicegui import app as nicegui, ui

    from trimtab.serve.dashboard.frame import register
    from trimtab.serve.dashboard.pages import PAGES

    nicegui.add_static_files(STATIC, str(resources.files(__package__).joinpath("static")), max_cache_age=3600)
    nicegui.config.socket_io_js_transports = ["websocket"]
    register(PAGES)
    pages = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ui.run_with(
        pages,
        title="Trimtab",
        language="en-US",
        dark=None,
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=10.0,
        binding_refresh_interval=None,
    )
    return pages
