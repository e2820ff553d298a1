"""Around every request: authentication, rate limits, security headers, body limits, metrics, log, errors."""

import asyncio
import itertools
import logging
import math
import secrets
import time
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from trimtab.core import TrimtabError, is_loopback
from trimtab.serve.access import LOCAL, Access, ForbiddenError, Principal, UnknownCallerError
from trimtab.serve.http.endpoint import crash_answer, error_answer
from trimtab.serve.problems import HttpError

log = logging.getLogger("trimtab.serve")

UNKNOWN_RATE = 20.0
"""Requests per second of an address without a valid token."""

_MOST_BUCKETS = 20_000
_CHECKED = (b"host", b"origin", b"sec-fetch-site")
BODY_TIMEOUT = 20.0
"""Seconds in which a body must have arrived."""

_API_PATHS = ("/v1/", "/healthz", "/metrics")
_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_API_SECURITY = (
    (b"cache-control", b"private, no-cache"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")
_READS = ("GET", "HEAD")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_CLOSE = (("connection", "close"),)
_FRAMING = (b"content-length", b"transfer-encoding")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)  # s


@dataclass(slots=True)
class Buckets:
    """Token buckets by name; each fills with `rate` per second up to `burst`. A rate of 0 is no limit."""

    rate: float
    burst: float
    _levels: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, name: str, now: float) -> float:
        """Take a token from a bucket; returns 0.0, or the seconds until there is one."""
        if self.rate <= 0:
            return 0.0
        level, then = self._levels.get(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        if level < 1.0:
            self._levels[name] = (level, now)
            return (1.0 - level) / self.rate
        if len(self._levels) >= _MOST_BUCKETS:
            # A full bucket need not be kept.
            levels = {
                name: (level, then)
                for name, (level, then) in self._levels.items()
                if level + (now - then) * self.rate < self.burst
            }
            self._levels = levels if len(levels) < _MOST_BUCKETS else {}
        self._levels[name] = (level - 1.0, now)
        return 0.0


def retry_after(seconds: float) -> str:
    return str(max(1, math.ceil(seconds)))


@dataclass(slots=True)
class Gate:
    """Admits callers. `rate` is requests per second of each token; `hosts` are names of this server."""

    access: Access
    rate: float = 0.0
    hosts: frozenset[str] = frozenset()
    _known: Buckets = field(init=False)
    _unknown: Buckets = field(init=False)

    def __post_init__(self) -> None:
        self._known = Buckets(self.rate, 2 * self.rate)
        self._unknown = Buckets(UNKNOWN_RATE, 2 * UNKNOWN_RATE)

    def admit(self, scope: Any) -> Principal:
        """Principal of a request; raises if the caller is unknown or over its rate."""
        headers = scope["headers"]
        address = scope["client"][0] if scope["client"] else ""
        authorization = next((value for name, value in headers if name == b"authorization"), None)
        try:
            text = None if authorization is None else authorization.decode("latin-1")
            caller = self.access.caller(text, is_here(address))
        except UnknownCallerError:
            self._take(self._unknown, address)
            raise
        if caller is LOCAL:
            self._refuse_other_sites(headers)
        self._take(self._known, caller.id)
        return caller

    def _take(self, buckets: Buckets, name: str) -> None:
        wait = buckets.take(name, time.monotonic())
        if wait:
            after = retry_after(wait)
            raise HttpError(429, f"too many requests; try again in {after} s", (("retry-after", after),))

    def _refuse_other_sites(self, headers: Any) -> None:
        """Without a token, another site's page in a browser on this machine must not act as its user."""
        sent = {name: value.decode("latin-1") for name, value in headers if name in _CHECKED}
        host = sent.get(b"host", "")
        if host not in self.hosts and not names_this_machine(host):
            raise ForbiddenError("without a token, use a name of this machine in the URL, such as localhost")
        origin = sent.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise ForbiddenError("without a token, pages of other sites may send no requests")
        if sent.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ForbiddenError("without a token, pages of other sites may send no requests")


@lru_cache(maxsize=256)
def names_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.strip("[]"))


@lru_cache(maxsize=4096)
def is_here(address: str) -> bool:
    return address != "" and is_loopback(address.removeprefix("::ffff:"))


class RequestMetrics:
    """Counts answers by method and status, and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "trimtab_requests", "requests that were answered", ("method", "status"), registry=registry
        )
        self._counters: dict[tuple[str, int], Counter] = {}
        self._seconds = Histogram(
            "trimtab_request_seconds", "how long requests took", registry=registry, buckets=_BUCKETS
        )

    def add(self, method: str, status: int, seconds: float) -> None:
        """Count one answer; methods that clients invent count together, so that labels stay few."""
        counter = self._counters.get((method, status))
        if counter is None:
            known = method if method in _METHODS else "other"
            counter = self._requests.labels(known, status)
            if known == method:
                self._counters[method, status] = counter
        counter.inc()
        self._seconds.observe(seconds)


class RequestMiddleware:
    """The outermost layer. `tls`: the server is reached by TLS only; `largest` bounds bodies, in bytes."""

    def __init__(self, app: Any, metrics: RequestMetrics, tls: bool, largest: int) -> None:
        self._app = app
        self._metrics = metrics
        self._security = (*_SECURITY, _ONLY_TLS) if tls else _SECURITY
        self._api_security = (*self._security, *_API_SECURITY)
        self._largest = largest
        self._key, self._count = secrets.token_bytes(16), itertools.count()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = scope["trimtab.id"] = self._next_id()
        began, status = time.perf_counter(), 0
        more = self._api_security if scope["path"].startswith(_API_PATHS) else self._security

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message["headers"])
                known = {name for name, _ in headers}
                headers += [header for header in more if header[0] not in known]
                message["headers"] = [*headers, (b"x-request-id", id.encode())]
            await send(message)

        try:
            await self._app(scope, self._bounded(scope, receive), sending)
        except TrimtabError as error:
            if status == 0:
                answer = error_answer(error, id)
                if answer.status >= 500:
                    scope["trimtab.why"] = str(error)  # for the log alone
                await answer.send(sending)
        except Exception:
            log.exception("request %s failed", id)
            if status == 0:
                await crash_answer(id).send(sending)
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
        """A keyed hash: consecutive numbers would tell a caller how many requests others send."""
        number = next(self._count).to_bytes(8, "big")
        return blake2b(number, key=self._key, digest_size=8).hexdigest()


def _log_request(scope: Any, id: str, status: int, took: float) -> None:
    """Log a request by its path without the query, which may hold a secret."""
    usual = status < 400 and scope["method"] in _READS
    level = logging.DEBUG if usual else logging.INFO if status < 500 else logging.ERROR
    if log.isEnabledFor(level):
        why = f": {scope['trimtab.why']}" if "trimtab.why" in scope else ""
        path = "".join(c if c.isprintable() else "?" for c in scope["path"][:200])
        log.log(level, "%s %s %d in %.1f ms (%s)%s", scope["method"], path, status, took * 1e3, id, why)
