"""Requests of the load: reads as dashboards and programs send them, and writes with an idempotency key."""

import json
import random
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from trimtab.core import to_plain
from trimtab_bench.serve import store
from trimtab_bench.serve.store import ALL_TENANTS, JOB, TENANTS, StoreSize, a_decision, a_profile

READS: Mapping[str, float] = {
    "jobs.list first": 12.0,
    "jobs.list state": 6.0,
    "jobs.list middle": 4.0,
    "jobs.list last": 3.0,
    "jobs.get": 20.0,
    "decisions.list first": 10.0,
    "decisions.list kind": 4.0,
    "decisions.list subject": 4.0,
    "decisions.list middle": 4.0,
    "decisions.list last": 3.0,
    "decisions.get": 12.0,
    "decisions.outcomes": 3.0,
    "events.list first": 4.0,
    "profiles.list first": 1.0,
    "profiles.get": 2.0,
    "tenants": 3.0,
    "fleet": 2.0,
    "catalog.offers": 1.0,
    "catalog.accelerator": 2.0,
}
"""Reads by their share, in percent. One in ten is by an admin of all tenants, the others by a tenant."""

WRITES: Mapping[str, float] = {
    "jobs.submit": 25.0,
    "jobs.cancel": 25.0,
    "outcomes.record": 30.0,
    "profiles.keep": 10.0,
    "decisions.record": 10.0,
}
"""Writes by their share, in percent. As many jobs are cancelled as submitted, so the queue stays as long."""

_ADMIN_SHARE = 0.1  # of reads
_LEFT = 30  # on the last page
_NAMES = {"jobs": store.job_id, "profiles": store.profile_id, "decisions": store.decision_id}


class HttpRequest(NamedTuple):
    """The bytes of a request, its operation, and the token in it."""

    name: str
    token: str
    data: bytes


class ConstantRequests:
    """The one request of the constant server."""

    def request(self, name: str) -> HttpRequest:
        return HttpRequest(name, "", b"GET /constant HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def submitted(self, token: str, id: str) -> None:
        """Never called: nothing is submitted."""


class StoreRequests:
    """Requests by operation. `tokens` are by tenant; `run` sets these idempotency keys apart from others."""

    def __init__(self, size: StoreSize, tokens: Mapping[str, str], run: str, seed: int) -> None:
        self._size = size
        self._tokens = tokens
        self._run = run
        self._random = random.Random(seed)
        self._cancellable: deque[tuple[str, str]] = deque()
        self._count = 0
        self._job = {key: value for key, value in JOB.items() if key != "name"}
        self._decision = to_plain(a_decision())
        self._profile = to_plain(a_profile(samples=10))

    def request(self, name: str) -> HttpRequest:
        return self._write(name) if name in WRITES else self._read(name)

    def submitted(self, token: str, id: str) -> None:
        """Add a job that may be cancelled."""
        self._cancellable.append((token, id))

    def _read(self, name: str) -> HttpRequest:
        owner = None if self._random.random() < _ADMIN_SHARE else self._random_tenant()
        token = self._tokens[ALL_TENANTS if owner is None else store.tenant(owner)]
        return HttpRequest(name, token, get(self.path(name, owner), token))

    def path(self, name: str, owner: int | None) -> str:
        """Path of a read by a tenant (its number), or by an admin of all (None); some of it is random."""
        area, _, what = name.partition(".")
        if area in ("tenants", "fleet"):
            return f"/v1/{area}"
        if area == "catalog":
            return "/v1/catalog/accelerators/a100" if what == "accelerator" else _OFFERS
        if what.startswith("list"):
            return f"/v1/{area}{self._page(area, what.partition(' ')[2], owner)}"
        number = store.nth_of(owner, self._random.random(), getattr(self._size, area))
        return f"/v1/{area}/{_NAMES[area](number)}{'/outcomes' if what == 'outcomes' else ''}"

    def _page(self, area: str, which: str, owner: int | None) -> str:
        if area == "profiles":
            return "?limit=5"
        if which == "first":
            return ""
        if which == "state":
            return "?state=ended&state=failed"
        if which == "kind":
            return f"?kind={self._random.choice(store.DECISION_KINDS)}"
        if which == "subject":
            other = TENANTS * self._random.randrange(store.SUBJECTS // TENANTS)
            return f"?subject={store.subject(other + (owner or 0))}"
        count: int = getattr(self._size, area)
        last = which == "last"
        number = store.nearly_last(owner, _LEFT, count) if last else store.nth_of(owner, 0.5, count)
        return f"?after={_NAMES[area](number)}"

    def _write(self, name: str) -> HttpRequest:
        if name == "jobs.cancel" and self._cancellable:
            token, id = self._cancellable.popleft()
            return HttpRequest(name, token, post(f"/v1/jobs/{id}/cancel", token, self._key(), b""))
        owner = self._random_tenant()
        if name == "outcomes.record":
            id = store.decision_id(store.nth_of(owner, self._random.random(), self._size.decisions))
            body = {"measured": {"time": 7100.0, "cost": 1.9}, "note": f"{self._run}-{self._count}"}
            return self._post(name, f"/v1/decisions/{id}/outcomes", body, owner)
        if name == "profiles.keep":
            return self._post(name, "/v1/profiles", {"profile": self._profile}, owner)
        if name == "decisions.record":
            return self._post(name, "/v1/decisions", {"decision": self._decision}, owner)
        job = {"name": f"load-{self._count}", **self._job}  # also where there is none to cancel
        return self._post("jobs.submit", "/v1/jobs", {"jobs": [job]}, owner)

    def _post(self, name: str, path: str, body: object, owner: int) -> HttpRequest:
        token = self._tokens[store.tenant(owner)]
        return HttpRequest(name, token, post(path, token, self._key(), json.dumps(body).encode()))

    def _random_tenant(self) -> int:
        return self._random.randrange(TENANTS)

    def _key(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"


_OFFERS = "/v1/catalog/offers?accelerator=a100&limit=20"


def get(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def post(path: str, token: str, key: str, body: bytes) -> bytes:
    """Bytes of a POST request with an idempotency key; without a token where that is empty."""
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    kind = "Content-Type: application/json\r\n" if body else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}"
        f"Idempotency-Key: {key}\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
