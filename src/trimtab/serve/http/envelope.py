"""Around every request: an id, headers that keep browsers careful, a line in the log, and no error unsaid."""

import itertools
import logging
import secrets
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from trimtab.core import TrimtabError
from trimtab.serve.http.answer import crashed, failed, reply

log = logging.getLogger("trimtab.serve")

_OURS = ("/v1/", "/healthz", "/metrics")
_CAREFUL = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_OF_DATA = (
    (b"cache-control", b"private, no-cache"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_ONLY_ENCRYPTED = (b"strict-transport-security", b"max-age=31536000")
_READS = ("GET", "HEAD")
EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)
"""Seconds that requests are counted by."""


@dataclass(slots=True)
class Figures:
    """How many requests of each method had each status, and how long they took in seconds."""

    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    within: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))
    seconds: float = 0.0

    def add(self, method: str, status: int, seconds: float) -> None:
        """Count one."""
        key = (method, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        self.seconds += seconds
        self.within[bisect_left(EDGES, seconds)] += 1


class Envelope:
    """The outermost layer. `encrypted` says that we are reached by TLS alone."""

    def __init__(self, app: Any, figures: Figures, encrypted: bool = False) -> None:
        self._app = app
        self._figures = figures
        self._careful = (*_CAREFUL, _ONLY_ENCRYPTED) if encrypted else _CAREFUL
        self._of_data = (*self._careful, *_OF_DATA)
        self._key, self._count = secrets.token_bytes(16), itertools.count()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = scope["trimtab.id"] = self._next_id()
        began, status = time.perf_counter(), 0
        more = self._of_data if scope["path"].startswith(_OURS) else self._careful

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message["headers"])
                known = {name for name, _ in headers}
                headers += [each for each in more if each[0] not in known]
                message["headers"] = [*headers, (b"x-request-id", id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except TrimtabError as error:
            if status == 0:
                await reply(sending, failed(error, scope))
        except Exception:
            log.exception("request %s failed", id)
            if status == 0:
                await reply(sending, crashed(id))
        finally:
            took = time.perf_counter() - began
            self._figures.add(scope["method"], status, took)
            self._note(scope, id, status, took)

    def _next_id(self) -> str:
        """As good as random: numbers in a row would tell each caller how much the others ask."""
        number = next(self._count).to_bytes(8, "big")
        return blake2b(number, key=self._key, digest_size=8).hexdigest()

    @staticmethod
    def _note(scope: Any, id: str, status: int, took: float) -> None:
        """The path without its query, so that no secret that somebody puts there is kept."""
        usual = status < 400 and scope["method"] in _READS
        level = logging.DEBUG if usual else logging.INFO if status < 500 else logging.ERROR
        if log.isEnabledFor(level):
            why = f": {scope['trimtab.why']}" if "trimtab.why" in scope else ""
            told = (scope["method"], _one_line(scope["path"]), status, took * 1e3, id, why)
            log.log(level, "%s %s %d in %.1f ms (%s)%s", *told)


def _one_line(path: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in path[:200])
