"""The requests that are sent: reads as dashboards and programs send them, and writes with a key each."""

import json
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from trimtab.core import to_plain
from trimtab_bench.serve import store
from trimtab_bench.serve.store import EVERYBODY, JOB, TENANTS, World, a_decision, a_profile

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
"""Reads by their share, in percent. One in ten is asked by who may see all tenants, others by one of them."""

WRITES: Mapping[str, float] = {
    "jobs.submit": 25.0,
    "jobs.cancel": 25.0,
    "outcomes.record": 30.0,
    "profiles.keep": 10.0,
    "decisions.record": 10.0,
}
"""Writes by their share, in percent. As many jobs are cancelled as submitted, so the queue stays as long."""

_ALL_TENANTS = 0.1  # of reads
_LEFT = 30  # on the last page
_NAMES = {"jobs": store.job_id, "profiles": store.profile_id, "decisions": store.decision_id}


class Request(NamedTuple):
    """What is sent, for which operation, and by whose token."""

    name: str
    token: str
    data: bytes


class Asks(Protocol):
    """Makes requests by the names of operations, and is told of jobs that were submitted."""

    def request(self, name: str) -> Request: ...

    def submitted(self, token: str, id: str) -> None: ...


class Constant:
    """The one request that the server understands which the others are compared with."""

    def request(self, name: str) -> Request:
        """The same each time."""
        return Request(name, "", b"GET /constant HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def submitted(self, token: str, id: str) -> None:
        """Never happens."""


class Operations:
    """Makes requests. `tokens` are by tenant; `run` sets this one's keys apart from those of others."""

    def __init__(self, size: World, tokens: Mapping[str, str], run: str, seed: int) -> None:
        self._size = size
        self._tokens = tokens
        self._run = run
        self._random = random.Random(seed)
        self._cancellable: deque[tuple[str, str]] = deque()
        self._count = 0
        self._job = {key: value for key, value in JOB.items() if key != "name"}
        self._decision = to_plain(a_decision())
        self._profile = to_plain(a_profile(samples=10))
        self._make: Mapping[str, Callable[[], Request]] = {
            "jobs.submit": self._submit,
            "jobs.cancel": self._cancel,
            "outcomes.record": self._outcome,
            "profiles.keep": self._keep,
            "decisions.record": self._record,
        }

    def request(self, name: str) -> Request:
        """The next request of an operation."""
        return self._make[name]() if name in self._make else self._read(name)

    def submitted(self, token: str, id: str) -> None:
        """A job that may be cancelled."""
        self._cancellable.append((token, id))

    def _read(self, name: str) -> Request:
        whose = None if self._random.random() < _ALL_TENANTS else self._anybody()
        token = self._tokens[EVERYBODY if whose is None else store.tenant(whose)]
        return Request(name, token, get(self.path(name, whose), token))

    def path(self, name: str, whose: int | None) -> str:
        """Where an operation asks for a tenant's things, or anybody's (None); some of them at random."""
        area, _, what = name.partition(".")
        if area in ("tenants", "fleet"):
            return f"/v1/{area}"
        if area == "catalog":
            return "/v1/catalog/accelerators/a100" if what == "accelerator" else _OFFERS
        if what.startswith("list"):
            return f"/v1/{area}{self._page(area, what.partition(' ')[2], whose)}"
        number = store.nth_of(whose, self._random.random(), self._count_of(area))
        return f"/v1/{area}/{_NAMES[area](number)}{'/outcomes' if what == 'outcomes' else ''}"

    def _page(self, area: str, which: str, whose: int | None) -> str:
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
            return f"?subject={store.subject(other + (whose or 0))}"
        count = self._count_of(area)
        last = which == "last"
        number = store.nearly_last(whose, _LEFT, count) if last else store.nth_of(whose, 0.5, count)
        return f"?after={_NAMES[area](number)}"

    def _count_of(self, area: str) -> int:
        size = self._size
        return {"jobs": size.jobs, "profiles": size.profiles, "decisions": size.decisions}[area]

    def _submit(self) -> Request:
        body = {"jobs": [{"name": f"load-{self._count}", **self._job}]}
        return self._post("jobs.submit", "/v1/jobs", body, self._anybody())

    def _cancel(self) -> Request:
        if not self._cancellable:
            return self._submit()
        token, id = self._cancellable.popleft()
        return Request("jobs.cancel", token, post(f"/v1/jobs/{id}/cancel", token, self._key(), b""))

    def _outcome(self) -> Request:
        whose = self._anybody()
        id = store.decision_id(store.nth_of(whose, self._random.random(), self._size.decisions))
        body = {"measured": {"time": 7100.0, "cost": 1.9}, "note": f"{self._run}-{self._count}"}
        return self._post("outcomes.record", f"/v1/decisions/{id}/outcomes", body, whose)

    def _keep(self) -> Request:
        return self._post("profiles.keep", "/v1/profiles", {"profile": self._profile}, self._anybody())

    def _record(self) -> Request:
        return self._post("decisions.record", "/v1/decisions", {"decision": self._decision}, self._anybody())

    def _post(self, name: str, path: str, body: object, whose: int) -> Request:
        token = self._tokens[store.tenant(whose)]
        return Request(name, token, post(path, token, self._key(), json.dumps(body).encode()))

    def _anybody(self) -> int:
        return self._random.randrange(TENANTS)

    def _key(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"


_OFFERS = "/v1/catalog/offers?accelerator=a100&limit=20"


def get(path: str, token: str) -> bytes:
    """A request that reads."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def post(path: str, token: str, key: str, body: bytes) -> bytes:
    """A request that writes, once for each key."""
    kind = "Content-Type: application/json\r\n" if body else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Idempotency-Key: {key}\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
