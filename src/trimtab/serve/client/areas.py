"""What a server can be asked for, under the names and with the results of its own operations."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trimtab.core import Decision, NotFoundError, Offer, Outcome, Profile, from_plain, to_plain
from trimtab.serve.client.connection import Connection
from trimtab.serve.encoding import encoded
from trimtab.serve.operations import LARGEST_PIECE, LogPiece, ModelVersion, WantedOffers
from trimtab.store import (
    Event,
    JobRecord,
    Page,
    Role,
    Tenant,
    Token,
    WantedDecisions,
    WantedJobs,
    WantedProfiles,
)

if TYPE_CHECKING:
    from trimtab.resize import Status
    from trimtab.schedule import SchedulerStatus


class RemoteArea:
    """Operations over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


class RemoteJobs(RemoteArea):
    """Jobs."""

    def page(
        self, limit: int = 50, wanted: WantedJobs | None = None, after: str | None = None
    ) -> Page[JobRecord]:
        """Newest first."""
        told = wanted or WantedJobs()
        query = {"state": [state.value for state in told.states] or None, "name": told.name}
        query |= {"since": told.since, "until": told.until, "tenant": _one(told.tenants)}  # type: ignore[dict-item]
        items, following = self._connection.pages("/v1/jobs", limit, after, **query)
        return Page(tuple(from_plain(JobRecord, each, "a job") for each in items), following)

    def get(self, id: str) -> JobRecord:
        """One, by its id or the start of it."""
        return from_plain(JobRecord, self._connection.get(f"/v1/jobs/{_part(id)}"), "a job")

    def submit(
        self, documents: Sequence[Mapping[str, Any]], tenant: str | None = None, keep: bool = True
    ) -> tuple[JobRecord, ...]:
        """Hand in jobs, each as a job file writes it. `keep` False only checks."""
        body = {"jobs": list(documents), "tenant": tenant, "dry_run": not keep}
        items = self._connection.post("/v1/jobs", body)["items"]
        return tuple(from_plain(JobRecord, each, "a job") for each in items)

    def cancel(self, id: str) -> JobRecord:
        """Ask for a job's end."""
        return from_plain(JobRecord, self._connection.post(f"/v1/jobs/{_part(id)}/cancel", None), "a job")

    def log(self, id: str, offset: int = 0, most: int = LARGEST_PIECE) -> LogPiece:
        """What its present or last run has written, from `offset` (bytes) on."""
        told = self._connection.get(f"/v1/jobs/{_part(id)}/log", offset=offset, limit=most)
        return LogPiece(told["run"], told["offset"], told["text"].encode(), told["next"], told["over"])


class RemoteDecisions(RemoteArea):
    """Decisions and their outcomes."""

    def page(
        self, limit: int = 20, wanted: WantedDecisions | None = None, after: str | None = None
    ) -> Page[Decision]:
        """Newest first."""
        told = wanted or WantedDecisions()
        query = {"kind": told.kind, "subject": told.subject, "since": told.since, "until": told.until}
        found = self._connection.pages("/v1/decisions", limit, after, tenant=_one(told.tenants), **query)
        return Page(tuple(_decision(each) for each in found[0]), found[1])

    def get(self, id: str) -> Decision:
        """One, by its id or the start of it."""
        return _decision(self._connection.get(f"/v1/decisions/{_part(id)}"))

    def outcomes(self, id: str) -> tuple[Outcome, ...]:
        """What happened after it, oldest first."""
        items = self._connection.get(f"/v1/decisions/{_part(id)}/outcomes")["items"]
        return tuple(from_plain(Outcome, each, "an outcome") for each in items)

    def record(self, decision: Decision, tenant: str | None = None) -> Decision:
        """Keep one that was made here; as it is kept, which may be under another id.

        Recording the same one again within a day does nothing.
        """
        body = {"decision": to_plain(decision), "tenant": tenant}
        key = sha256(encoded(body)).hexdigest()
        return _decision(self._connection.post("/v1/decisions", body, key))

    def record_outcome(self, id: str, measured: Mapping[str, float], note: str = "") -> Outcome:
        """Keep what happened after it."""
        body = {"measured": dict(measured), "note": note}
        return from_plain(Outcome, self._connection.post(f"/v1/decisions/{_part(id)}/outcomes", body))


class RemoteProfiles(RemoteArea):
    """Profiles."""

    def page(
        self, limit: int = 20, wanted: WantedProfiles | None = None, after: str | None = None
    ) -> Page[Profile]:
        """Newest first."""
        told = wanted or WantedProfiles()
        query = {"workload": told.workload, "since": told.since, "until": told.until}
        found = self._connection.pages("/v1/profiles", limit, after, tenant=_one(told.tenants), **query)
        return Page(tuple(_profile(each) for each in found[0]), found[1])

    def get(self, id: str) -> Profile:
        """One, by its id or the start of it."""
        return _profile(self._connection.get(f"/v1/profiles/{_part(id)}"))

    def latest(self) -> Profile:
        """The newest."""
        found = self.page(1).items
        if not found:
            raise NotFoundError("there is no profile yet; take one with: trimtab profile -- python train.py")
        return found[0]

    def save(self, profile: Profile, tenant: str | None = None) -> Profile:
        """Keep one; as it is kept, which may be under another id."""
        body = {"profile": to_plain(profile), "tenant": tenant}
        return _profile(self._connection.post("/v1/profiles", body))


class RemoteTenants(RemoteArea):
    """Tenants."""

    def list(self) -> tuple[Tenant, ...]:
        """By name."""
        return tuple(from_plain(Tenant, each) for each in self._connection.get("/v1/tenants")["items"])

    def get(self, name: str) -> Tenant:
        """One of them."""
        return from_plain(Tenant, self._connection.get(f"/v1/tenants/{_part(name)}"))

    def put(self, tenant: Tenant) -> Tenant:
        """Keep one in place of the one of its name as it is now."""
        path = f"/v1/tenants/{_part(tenant.name)}"
        try:
            condition = {"If-Match": self._connection.tagged(path)[1]}
        except NotFoundError:
            condition = {"If-None-Match": "*"}
        body = {name: value for name, value in asdict(tenant).items() if name != "name"}
        return from_plain(Tenant, self._connection.put(path, body, condition))

    def remove(self, name: str) -> Tenant:
        """Forget one."""
        path = f"/v1/tenants/{_part(name)}"
        condition = {"If-Match": self._connection.tagged(path)[1]}
        return from_plain(Tenant, self._connection.delete(path, condition))


class RemoteTokens(RemoteArea):
    """Tokens."""

    def page(self, limit: int = 100, after: str | None = None) -> Page[Token]:
        """Newest first."""
        items, following = self._connection.pages("/v1/tokens", limit, after)
        return Page(tuple(map(_token, items)), following)

    def make(
        self,
        name: str,
        role: Role,
        tenant: str | None = None,
        scopes: Collection[str] = ("*",),
        lifetime: float | None = None,
    ) -> tuple[Token, str]:
        """A new one and its text."""
        body = {"name": name, "role": role.value, "tenant": tenant, "scopes": sorted(scopes)}
        told = self._connection.post("/v1/tokens", {**body, "lifetime": lifetime})
        return _token(told), told["text"] or ""

    def revoke(self, id: str) -> Token:
        """End one for good."""
        return _token(self._connection.delete(f"/v1/tokens/{_part(id)}"))


class RemoteFleet(RemoteArea):
    """The scheduler and its nodes."""

    def now(self) -> "SchedulerStatus":
        """As it last spoke."""
        from trimtab.schedule import SchedulerStatus

        return from_plain(SchedulerStatus, self._connection.get("/v1/fleet"), "the fleet")


class RemotePools(RemoteArea):
    """Pools and their containers."""

    def status(self) -> "Status":
        """Where they stand; an error where no agent runs there."""
        from trimtab.resize import Status

        pools = self._connection.get("/v1/pools")["items"]
        if not pools:
            raise NotFoundError("no agent runs there; start one with trimtab agent --pools FILE")
        told = {
            "time": 0.0,
            "late": 0,
            "caps": {pool["name"]: [pool["cpus"], pool["memory"]] for pool in pools},
            "rows": [row for pool in pools for row in pool["containers"]],
            "given": {pool["name"]: [pool["given_cpus"], pool["given_memory"]] for pool in pools},
        }
        return from_plain(Status, told, "the pools")


class RemoteFabric(RemoteArea):
    """Hosts' networks."""

    def names(self) -> tuple[str, ...]:
        """Of hosts that there are."""
        return tuple(self._connection.get("/v1/fabric")["items"])

    def get(self, host: str) -> dict[str, Any]:
        """What a host's fabric does."""
        told: dict[str, Any] = self._connection.get(f"/v1/fabric/{_part(host)}")
        return told


class RemoteModels(RemoteArea):
    """Versions of the models."""

    def list(self) -> tuple[ModelVersion, ...]:
        """Oldest first."""
        return tuple(from_plain(ModelVersion, each) for each in self._connection.get("/v1/models")["items"])

    def rollback(self, version: str | None = None) -> ModelVersion:
        """Let an earlier one answer again."""
        return from_plain(ModelVersion, self._connection.post("/v1/models/rollback", {"version": version}))


class RemoteCatalog(RemoteArea):
    """What can be rented."""

    def offers(
        self, limit: int = 50, wanted: WantedOffers | None = None, after: str | None = None
    ) -> Page[Offer]:
        """Cheapest first."""
        told = wanted or WantedOffers()
        query = {"cloud": told.clouds, "region": told.regions, "accelerator": told.accelerators}
        least = {"min_memory": told.min_memory, "min_accelerators": told.min_accelerators}
        more = {"max_price": told.max_price, "spot": told.spot}
        named = {name: list(values) or None for name, values in query.items()}
        items, following = self._connection.pages(
            "/v1/catalog/offers", limit, after, **named, **least, **more
        )
        return Page(tuple(from_plain(Offer, each, "an offer") for each in items), following)


class RemoteEvents(RemoteArea):
    """Events."""

    def follow(self, since: int | None = None, kinds: tuple[str, ...] = ()) -> Iterator[Event]:
        """As they happen, without end."""
        for told in self._connection.events(since, kinds):
            yield from_plain(Event, told, "an event")


def _one(tenants: Sequence[str] | None) -> str | None:
    return None if tenants is None else next(iter(tenants), "")


def _part(name: str) -> str:
    return quote(name, safe="") or "%20"


def _decision(told: dict[str, Any]) -> Decision:
    return from_plain(Decision, _without_tenant(told), "a decision")


def _profile(told: dict[str, Any]) -> Profile:
    return from_plain(Profile, _without_tenant(told), "a profile")


def _without_tenant(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != "tenant"}


def _token(told: dict[str, Any]) -> Token:
    plain = {name: value for name, value in told.items() if name not in ("text", "scopes", "role")}
    return Token(**plain, scopes=frozenset(told["scopes"]), role=Role(told["role"]))
