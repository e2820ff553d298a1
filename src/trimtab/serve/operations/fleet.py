"""The fleet: what the scheduler last said of its nodes; what pools hold; what hosts' networks do."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trimtab.core import NotFoundError, TrimtabError
from trimtab.serve.operations.desk import Area

if TYPE_CHECKING:
    from trimtab.resize import Status as PoolStatus
    from trimtab.schedule import SchedulerStatus


class Fleet(Area):
    """The scheduler and its groups of nodes: capacity, which every tenant may know."""

    __slots__ = ()

    def now(self) -> "SchedulerStatus":
        """What the scheduler last said about itself."""
        self.principal.require("fleet")
        return self.desk.scheduler()


@dataclass(frozen=True, slots=True)
class PoolNow:
    """A pool: its caps (CPUs, bytes), what of them is given, and its containers as plain data."""

    name: str
    cpus: float
    memory: float
    given_cpus: float
    given_memory: float
    containers: tuple[dict[str, Any], ...]


class Pools(Area):
    """Pools whose agent or controller runs on this machine; for who may see all tenants."""

    __slots__ = ()

    def status(self) -> "PoolStatus":
        """The latest snapshot; an error where there is none."""
        from trimtab.resize import read_status

        self.principal.require("pools", fleet=True)
        return read_status(self.desk.clock.now())

    def list(self) -> tuple[PoolNow, ...]:
        """By name; none where no agent runs."""
        try:
            status = self.status()
        except NotFoundError:
            return ()
        return tuple(
            PoolNow(
                name,
                cpus,
                memory,
                *status.given.get(name, (0.0, 0.0)),
                tuple(asdict(row) for row in status.rows if row.pool == name),
            )
            for name, (cpus, memory) in sorted(status.caps.items())
        )

    def get(self, name: str) -> PoolNow:
        """One of them."""
        found = next((pool for pool in self.list() if pool.name == name), None)
        if found is None:
            raise NotFoundError(f'there is no pool "{name:.80}"')
        return found


class Fabric(Area):
    """Hosts whose agents run on this machine; for who may see all tenants."""

    __slots__ = ()

    def names(self) -> tuple[str, ...]:
        """Of hosts that there are."""
        from trimtab.fabric import fabrics_here

        self.principal.require("fabric", fleet=True)
        return fabrics_here()

    def get(self, host: str) -> dict[str, Any]:
        """What a host's fabric does: uplinks, paths, failovers, sessions, and whether its agent runs."""
        from trimtab.fabric import Sessions, agent_runs, plain_status, read_status, sessions_of

        if host not in self.names():
            raise NotFoundError(f'there is no host "{host:.80}" with a fabric here')
        status = read_status(host)
        sessions, silent = Sessions(), list[str]()
        if agent_runs(host):
            try:
                sessions = sessions_of(host)
            except TrimtabError as error:
                silent = [str(error)]
        plain = plain_status(status, sessions)
        return {**plain, "problems": [*plain["problems"], *silent], "running": agent_runs(host)}
