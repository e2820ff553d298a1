"""Snapshot of an agent or a controller, written once a second and read by `trimtab top`."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trimtab.core import NotFoundError, home
from trimtab.kernel import write_whole
from trimtab.resize.controller import Controller
from trimtab.resize.member import ManagedContainer

_COLUMNS = ("cpus", "used", "memory", "memory_used")
STALE = 5.0  # s after which an agent that wrote nothing is not running


class StatusSource(Protocol):
    """An agent, alone or under a controller."""

    @property
    def late(self) -> int: ...
    @property
    def lock(self) -> AbstractContextManager[Any]: ...
    @property
    def controller(self) -> Controller: ...
    @property
    def members(self) -> Sequence[ManagedContainer]: ...


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """A container now."""

    path: str
    pool: str
    cpus: float  # limit
    used_cpus: float
    memory: float  # bytes, limit
    used_memory: float
    throttles: int
    traps: int
    refusals: int


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """Containers at `time` (seconds since the epoch): an agent's, or a controller's busiest ones."""

    time: float
    late: int  # periods that began too late
    caps: dict[str, tuple[float, float]]  # CPUs and bytes, by pool
    rows: tuple[ContainerRow, ...]
    given: dict[str, tuple[float, float]] = field(default_factory=dict)  # of the caps, to all together
    hidden: int = 0  # containers that are there but have no row


def status_of(agent: StatusSource, time: float) -> PoolStatus:
    """A snapshot."""
    with agent.lock:
        pools = agent.controller.pools
        at = {slot: row for row, slot in enumerate(agent.controller.slots.tolist())}
        column = {name: agent.controller.column(name).tolist() for name in _COLUMNS}
        rows = tuple(
            ContainerRow(
                path=member.container.cgroup,
                pool=pools[member.pool].name,
                cpus=column["cpus"][at[member.slot]],
                used_cpus=column["used"][at[member.slot]],
                memory=column["memory"][at[member.slot]],
                used_memory=column["memory_used"][at[member.slot]],
                throttles=member.throttles,
                traps=member.traps,
                refusals=member.refusals,
            )
            for member in agent.members
        )
    given = {
        pool.name: (
            sum(row.cpus for row in rows if row.pool == pool.name),
            sum(row.memory for row in rows if row.pool == pool.name),
        )
        for pool in pools
    }
    return PoolStatus(time, agent.late, {pool.name: (pool.cpu, pool.memory) for pool in pools}, rows, given)


def write_status(status: PoolStatus, path: Path | None = None) -> None:
    """Keep it where `read_status` looks."""
    write_whole(path or agent_place(), json.dumps(asdict(status)))


def read_status(now: float, path: Path | None = None) -> PoolStatus:
    """The latest snapshot, a controller's before an agent's; an error where nobody has written one lately."""
    if path is None and controller_place().exists():
        try:
            return _read(now, controller_place())
        except NotFoundError:
            if not agent_place().exists():
                raise
    return _read(now, path or agent_place())


def agent_place() -> Path:
    """Where an agent's snapshot is."""
    return home() / "agent.json"


def controller_place() -> Path:
    """Where a controller's is."""
    return home() / "controller.json"


def _read(now: float, place: Path) -> PoolStatus:
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
        rows = tuple(ContainerRow(**row) for row in data["rows"])
        caps, given = ({k: tuple(v) for k, v in data[name].items()} for name in ("caps", "given"))
        status = PoolStatus(data["time"], data["late"], caps, rows, given, data["hidden"])
    except FileNotFoundError:
        raise NotFoundError("no agent runs here; start one with trimtab agent --pools FILE") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise NotFoundError(f"{place} is not what an agent writes; start trimtab agent anew") from None
    if now - status.time > STALE:
        raise NotFoundError(f"the agent was last heard of {now - status.time:.0f} s ago; start it again")
    return status
