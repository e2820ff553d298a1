"""The scheduler and its nodes, the pools of containers, and the networks of hosts."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trimtab.core import NotFoundError, TrimtabError, from_plain
from trimtab.serve.operations.operation import Area, BodyModel, operation

if TYPE_CHECKING:
    from trimtab.resize import PoolStatus
    from trimtab.schedule import SchedulerStatus


class FleetNow(BodyModel):
    """State that the scheduler published: engine, policy, groups of equal nodes, whether it is alive."""

    engine: str
    policy: str
    groups: list[dict[str, Any]]
    there: bool


def _running(answer: Any) -> "SchedulerStatus":
    from trimtab.schedule import SchedulerStatus

    return from_plain(SchedulerStatus, answer, "the fleet")


class FleetOperations(Area, name="fleet"):
    """The scheduler and its groups of nodes; every tenant may see the capacity."""

    __slots__ = ()

    @operation("GET", "/v1/fleet", answer=FleetNow, read=_running)
    def now(self) -> "SchedulerStatus":
        """The scheduler, and the nodes that jobs can use."""
        return self.backend.scheduler()


@dataclass(frozen=True, slots=True)
class PoolNow:
    """A pool: its size (CPUs, bytes), how much of it is granted, and its containers as plain data."""

    name: str
    cpus: float
    memory: float
    given_cpus: float
    given_memory: float
    containers: tuple[dict[str, Any], ...]


class PoolOperations(Area, name="pools"):
    """Pools whose agent or controller runs on this machine; for tokens of all tenants."""

    __slots__ = ()

    @operation("GET", "/v1/pools", fleet=True, slow=True)
    def list(self) -> tuple[PoolNow, ...]:
        """Pools by name, their caps and containers; empty where no agent runs. For tokens of all tenants."""
        from trimtab.resize import read_status

        try:
            status = read_status(self.backend.clock.now())
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

    @operation("GET", "/v1/pools/{name}", fleet=True, slow=True, tagged=True)
    def get(self, name: str) -> PoolNow:
        """One pool."""
        found = next((pool for pool in self.list() if pool.name == name), None)
        if found is None:
            raise NotFoundError(f'there is no pool "{name:.80}"')
        return found

    def status(self) -> "PoolStatus":
        """All pools as the agent's own status has them; raises NotFoundError where no agent runs."""
        from trimtab.resize import PoolStatus

        pools = self.list()
        if not pools:
            raise NotFoundError("no agent runs there; start one with trimtab agent")
        plain = {
            "time": 0.0,
            "late": 0,
            "caps": {pool.name: [pool.cpus, pool.memory] for pool in pools},
            "rows": [row for pool in pools for row in pool.containers],
            "given": {pool.name: [pool.given_cpus, pool.given_memory] for pool in pools},
        }
        return from_plain(PoolStatus, plain, "the pools")


class FabricOperations(Area, name="fabric"):
    """Hosts whose fabric agents run on this machine; for tokens of all tenants."""

    __slots__ = ()

    @operation("GET", "/v1/fabric", fleet=True, slow=True)
    def names(self) -> tuple[str, ...]:
        """Hosts whose fabric runs on this machine; for tokens of all tenants."""
        from trimtab.fabric import fabrics_here

        return fabrics_here()

    @operation("GET", "/v1/fabric/{host}", fleet=True, slow=True, tagged=True)
    def get(self, host: str) -> dict[str, Any]:
        """Uplinks, paths, failovers and sessions of a host, and whether its agent runs."""
        from trimtab.fabric import Sessions, agent_runs, plain_status, read_status, sessions_of

        if host not in self.names():
            raise NotFoundError(f'there is no host "{host:.80}" with a fabric here')
        status = read_status(host)
        sessions, unreachable = Sessions(), list[str]()
        if agent_runs(host):
            try:
                sessions = sessions_of(host)
            except TrimtabError as error:
                unreachable = [str(error)]
        plain = plain_status(status, sessions)
        return {**plain, "problems": [*plain["problems"], *unreachable], "running": agent_runs(host)}
