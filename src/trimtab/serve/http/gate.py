"""Who comes in: callers are known by their token, ask no oftener than they may, and are no strange page."""

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from trimtab.core import is_loopback
from trimtab.serve.access import Access
from trimtab.serve.errors import ForbiddenError, UnknownCallerError
from trimtab.serve.http.buckets import Buckets, retry_after
from trimtab.serve.principal import LOCAL, Principal
from trimtab.serve.problems import HttpError

_STRANGERS = 20.0  # requests per second of an address that nobody knows


@dataclass(slots=True)
class Gate:
    """Lets callers in. `rate` is requests per second of each token; `hosts` are names that are ours."""

    access: Access
    rate: float = 0.0
    hosts: frozenset[str] = frozenset()
    _known: Buckets = field(init=False)
    _unknown: Buckets = field(default_factory=lambda: Buckets(_STRANGERS, 2 * _STRANGERS))

    def __post_init__(self) -> None:
        self._known = Buckets(self.rate, 2 * self.rate)

    def admit(self, scope: Any) -> Principal:
        """Who asks; raises where nobody knows, or they ask too often."""
        headers = scope["headers"]
        address = scope["client"][0] if scope["client"] else ""
        authorization = next((value for name, value in headers if name == b"authorization"), None)
        try:
            told = None if authorization is None else authorization.decode("latin-1")
            caller = self.access.caller(told, is_here(address))
        except UnknownCallerError:
            self._take(self._unknown, address)
            raise
        if caller is LOCAL:
            self._refuse_strange_pages(headers)
        self._take(self._known, caller.id)
        return caller

    def admit_anybody(self, scope: Any) -> None:
        """For what everybody may ask, as often as a stranger may."""
        self._take(self._unknown, scope["client"][0] if scope["client"] else "")

    def _take(self, buckets: Buckets, name: str) -> None:
        wait = buckets.take(name, time.monotonic())
        if wait:
            told = (("retry-after", retry_after(wait)),)
            raise HttpError(429, f"too many requests; try again in {retry_after(wait)} s", told)

    def _refuse_strange_pages(self, headers: Any) -> None:
        """Without a token, a page of somebody else's in a browser on this machine must not pass for us."""
        told = {name: value.decode("latin-1") for name, value in headers if name in _LOOKED_AT}
        host = told.get(b"host", "")
        if not self._ours(host):
            raise ForbiddenError("without a token, ask by a name of this machine, such as localhost")
        origin = told.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise ForbiddenError("without a token, no other site's page may ask")
        if told.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ForbiddenError("without a token, no other site's page may ask")

    def _ours(self, host: str) -> bool:
        return host in self.hosts or _names_this_machine(host)


@lru_cache(maxsize=256)
def _names_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.strip("[]"))


_LOOKED_AT = (b"host", b"origin", b"sec-fetch-site")


@lru_cache(maxsize=4096)
def is_here(address: str) -> bool:
    """Whether a caller's address is this machine's own."""
    return address != "" and is_loopback(address.removeprefix("::ffff:"))
