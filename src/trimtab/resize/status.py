"""Snapshot of an agent or a controller, written once a second and read by `trimtab top`."""

import json
import time as clock
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from trimtab.core import NotFoundError, home
from trimtab.kernel import boot_id, write_whole

if TYPE_CHECKING:
    from trimtab.resize.agent import NodeAgent
    from trimtab.resize.link.remote import RemoteAgent

_COLUMNS = ("cpus", "used", "memory", "memory_used")
STALE = 5.0  # s without a snapshot after which an agent counts as ended


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """A container's limits, use and counts."""

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
    given: dict[str, tuple[float, float]] = field(default_factory=dict)  # of the caps, by pool
    hidden: int = 0  # containers without a row
    unmanaged: dict[str, str] = field(default_factory=dict)  # reason by path: groups that cannot be managed
    processes: dict[str, list[int]] = field(default_factory=dict)  # ids of the agent and its switches
    boot: str = ""  # of the machine, when this was written
    monotonic: float = 0.0  # s since that boot


def status_of(agent: "NodeAgent | RemoteAgent", time: float) -> PoolStatus:
    """Snapshot of an agent, alone or under a controller."""
    with agent.lock:
        pools = agent.controller.pools
        at = {slot: row for row, slot in enumerate(agent.controller.slots.tolist())}
        cpus, used, memory, memory_used = (agent.controller.column(name).tolist() for name in _COLUMNS)
        rows = tuple(
            ContainerRow(
                member.container.cgroup,
                pools[member.pool].name,
                cpus[row],
                used[row],
                memory[row],
                memory_used[row],
                member.throttles,
                member.traps,
                member.refusals,
            )
            for member in agent.members
            for row in [at[member.slot]]
        )
    given = {
        pool.name: (
            sum(row.cpus for row in rows if row.pool == pool.name),
            sum(row.memory for row in rows if row.pool == pool.name),
        )
        for pool in pools
    }
    caps = {pool.name: (pool.cpu, pool.memory) for pool in pools}
    return PoolStatus(
        time, agent.late, caps, rows, given, unmanaged=agent.unmanaged, processes=agent.processes
    )


def write_status(status: PoolStatus, path: Path | None = None) -> None:
    """Write a snapshot; its age is measured by the monotonic clock while the machine is not booted again."""
    status = replace(status, boot=boot_id(), monotonic=clock.monotonic())
    write_whole(path or agent_file(), json.dumps(asdict(status)))


def read_status(now: float, path: Path | None = None) -> PoolStatus:
    """The latest snapshot, a controller's before an agent's; NotFoundError if none was written lately."""
    if path is None and controller_file().exists():
        try:
            return _read(now, controller_file())
        except NotFoundError:
            if not agent_file().exists():
                raise
    return _read(now, path or agent_file())


def agent_file() -> Path:
    return home() / "agent.json"


def controller_file() -> Path:
    return home() / "controller.json"


def _read(now: float, path: Path) -> PoolStatus:
    try:
        status = TypeAdapter(PoolStatus).validate_json(path.read_bytes())
    except FileNotFoundError:
        raise NotFoundError("no agent runs here; start one with trimtab agent --pools FILE") from None
    except (OSError, ValueError):
        raise NotFoundError(f"{path} is not an agent's status; start trimtab agent again") from None
    is_this_boot = status.boot != "" and status.boot == boot_id()
    age = clock.monotonic() - status.monotonic if is_this_boot else now - status.time
    if age > STALE:
        raise NotFoundError(f"the agent last wrote its status {age:.0f} s ago; start it again")
    return status
