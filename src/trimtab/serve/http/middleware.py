"""Around every request: an id, careful headers, bounds on its body, metrics, the log, and errors."""

import asyncio
import itertools
import logging
import secrets
import time
from hashlib import blake2b
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from trimtab.core import TrimtabError
from trimtab.serve.http.answer import Answer, crash_answer, error_answer, reply
from trimtab.serve.problems import HttpError

log = logging.getLogger("trimtab.serve")

BODY_TIMEOUT = 20.0
"""Seconds in which a body must have arrived."""

_API_PATHS = ("/v1/", "/healthz", "/metrics")
_CAREFUL = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_FOR_DATA = (
    (b"cache-control", b"private, no-cache"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")
_READS = ("GET", "HEAD")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_CLOSE = (("connection", "close"),)
_FRAMING = (b"content-length", b"transfer-encoding")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)  # s


class RequestMetrics:
    """Counts answers by method and status, and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "trimtab_requests", "requests that were answered", ("method", "status"), registry=registry
        )
        self._seconds = Histogram(
            "trimtab_request_seconds", "how long requests took", registry=registry, buckets=_BUCKETS
        )

    def add(self, method: str, status: int, seconds: float) -> None:
        """Count one answer; methods that clients invent count together, so that labels stay few."""
        self._requests.labels(method if method in _METHODS else "other", status).inc()
        self._seconds.observe(seconds)


class RequestMiddleware:
    """The outermost layer. `tls`: the server is reached by TLS alone; `largest` bounds bodies, in bytes."""

    def __init__(self, app: Any, metrics: RequestMetrics, tls: bool, largest: int) -> None:
        self._app = app
        self._metrics = metrics
        self._careful = (*_CAREFUL, _ONLY_TLS) if tls else _CAREFUL
        self._for_data = (*self._careful, *_FOR_DATA)
        self._largest = largest
        self._key, self._count = secrets.token_bytes(16), itertools.count()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = scope["trimtab.id"] = self._next_id()
        began, status = time.perf_counter(), 0
        more = self._for_data if scope["path"].startswith(_API_PATHS) else self._careful

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
            await self._app(scope, self._bounded(scope, receive), sending)
        except TrimtabError as error:
            if status == 0:
                await reply(sending, _refusal(scope, error))
        except Exception:
            log.exception("request %s failed", id)
            if status == 0:
                await reply(sending, crash_answer(id))
        finally:
            took = time.perf_counter() - began
            self._metrics.add(scope["method"], status, took)
            _log_request(scope, id, status, took)

    def _bounded(self, scope: Any, receive: Any) -> Any:
        """`receive` that raises when the body is too large (by its header, or by its chunks) or too slow."""
        framing = {name: value for name, value in scope["headers"] if name in _FRAMING}
        if len(framing) == 2:
            # Proxies disagree which of them counts, so that a second request could be smuggled in.
            raise HttpError(400, "send either Content-Length or Transfer-Encoding, not both", _CLOSE)
        if scope["method"] in _READS:
            return receive
        length = framing.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self._largest:
            raise self._too_large()
        deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT
        left, complete = self._largest, False

        async def bounded() -> Any:
            nonlocal left, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = f"the body had not arrived after {BODY_TIMEOUT:g} s"
                raise HttpError(408, late, _CLOSE) from None
            left -= len(message.get("body", b""))
            if left < 0:
                raise self._too_large()
            complete = not message.get("more_body", False)
            return message

        return bounded

    def _too_large(self) -> HttpError:
        return HttpError(413, f"a body has at most {self._largest} bytes here", _CLOSE)

    def _next_id(self) -> str:
        """As good as random: consecutive numbers would tell each caller how much the others ask."""
        number = next(self._count).to_bytes(8, "big")
        return blake2b(number, key=self._key, digest_size=8).hexdigest()


def _refusal(scope: Any, error: TrimtabError) -> Answer:
    answer = error_answer(error, scope["trimtab.id"])
    if answer.status >= 500:
        scope["trimtab.why"] = str(error)  # for the log alone
    return answer


def _log_request(scope: Any, id: str, status: int, took: float) -> None:
    """Log a request by its path without the query, so that no secret that somebody puts there is kept."""
    usual = status < 400 and scope["method"] in _READS
    level = logging.DEBUG if usual else logging.INFO if status < 500 else logging.ERROR
    if log.isEnabledFor(level):
        why = f": {scope['trimtab.why']}" if "trimtab.why" in scope else ""
        path = "".join(c if c.isprintable() else "?" for c in scope["path"][:200])
        log.log(level, "%s %s %d in %.1f ms (%s)%s", scope["method"], path, status, took * 1e3, id, why)
