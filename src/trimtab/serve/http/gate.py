"""Who may ask, and how often: authentication, rate limits, and no requests by other sites' pages."""

import math
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from trimtab.core import is_loopback
from trimtab.serve.access import LOCAL, Access, ForbiddenError, Principal, UnknownCallerError
from trimtab.serve.problems import HttpError

STRANGERS_RATE = 20.0
"""Requests per second of an address without a valid token."""

_MOST_BUCKETS = 20_000
_CHECKED = (b"host", b"origin", b"sec-fetch-site")


@dataclass(slots=True)
class Buckets:
    """Token buckets by name; each fills with `rate` per second up to `burst`. A rate of 0 is no limit."""

    rate: float
    burst: float
    _levels: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, name: str, now: float) -> float:
        """Take one; 0.0, or the seconds until there is one to take."""
        if self.rate <= 0:
            return 0.0
        level, then = self._levels.get(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        if level < 1.0:
            self._levels[name] = (level, now)
            return (1.0 - level) / self.rate
        if len(self._levels) >= _MOST_BUCKETS:
            self._drop_full(now)
        self._levels[name] = (level - 1.0, now)
        return 0.0

    def _drop_full(self, now: float) -> None:
        """Full buckets are as good as none."""
        kept = {
            name: (level, then)
            for name, (level, then) in self._levels.items()
            if level + (now - then) * self.rate < self.burst
        }
        self._levels = kept if len(kept) < _MOST_BUCKETS else {}


def retry_after(seconds: float) -> str:
    """Value of a Retry-After header."""
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
        self._unknown = Buckets(STRANGERS_RATE, 2 * STRANGERS_RATE)

    def admit(self, scope: Any) -> Principal:
        """Principal of a request; raises where the caller is unknown or asks too often."""
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

    def admit_anybody(self, scope: Any) -> None:
        """For what needs no token, as often as a stranger may ask."""
        self._take(self._unknown, scope["client"][0] if scope["client"] else "")

    def _take(self, buckets: Buckets, name: str) -> None:
        wait = buckets.take(name, time.monotonic())
        if wait:
            after = retry_after(wait)
            raise HttpError(429, f"too many requests; try again in {after} s", (("retry-after", after),))

    def _refuse_other_sites(self, headers: Any) -> None:
        """Without a token, a page of another site in a browser on this machine must not pass for its user."""
        found = {name: value.decode("latin-1") for name, value in headers if name in _CHECKED}
        host = found.get(b"host", "")
        if host not in self.hosts and not _names_this_machine(host):
            raise ForbiddenError("without a token, ask by a name of this machine, such as localhost")
        origin = found.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise ForbiddenError("without a token, no other site's page may ask")
        if found.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ForbiddenError("without a token, no other site's page may ask")


@lru_cache(maxsize=256)
def _names_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.strip("[]"))


@lru_cache(maxsize=4096)
def is_here(address: str) -> bool:
    """Whether a caller's address is this machine's own."""
    return address != "" and is_loopback(address.removeprefix("::ffff:"))
