"""Bodies that are too large or too slow are refused before anybody waits for all of them."""

import asyncio
from typing import Any

from trimtab.serve.problems import HttpError

PATIENCE = 20.0
"""Seconds in which a body must have arrived."""

_BODYLESS = ("GET", "HEAD")
_CLOSE = (("connection", "close"),)


class Bounds:
    """Passes requests on whose bodies have at most `largest` bytes and arrive in time."""

    def __init__(self, app: Any, largest: int) -> None:
        self._app = app
        self._largest = largest

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] in _BODYLESS:
            await self._app(scope, receive, send)
            return
        told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not told.isdigit() or len(told) > 18 or int(told) > self._largest:
            raise self._too_large()
        deadline = asyncio.get_running_loop().time() + PATIENCE
        left, complete = self._largest, False

        async def bounded() -> Any:
            nonlocal left, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = f"the body had not arrived after {PATIENCE:g} s"
                raise HttpError(408, late, _CLOSE) from None
            left -= len(message.get("body", b""))
            if left < 0:
                raise self._too_large()
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, bounded, send)

    def _too_large(self) -> HttpError:
        return HttpError(413, f"a body has at most {self._largest} bytes here", _CLOSE)
