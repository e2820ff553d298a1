"""What an agent is doing, for people to look at: written down once a second, read by `trimtab top`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from trimtab.core import NotFoundError, home
from trimtab.kernel import write_whole
from trimtab.resize.agent import Agent

_COLUMNS = ("cpus", "used", "memory", "memory_used")
STALE = 5.0  # s after which an agent that wrote nothing is not running


@dataclass(frozen=True, slots=True)
class Row:
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
class Status:
    """All containers of an agent at `time` (seconds since the epoch)."""

    time: float
    late: int  # periods that began too late
    caps: dict[str, tuple[float, float]]  # CPUs and bytes, by pool
    rows: tuple[Row, ...]


def status_of(agent: Agent, time: float) -> Status:
    """A snapshot."""
    pools = agent.controller.pools
    with agent.lock:
        at = {slot: row for row, slot in enumerate(agent.controller.slots.tolist())}
        column = {name: agent.controller.column(name).tolist() for name in _COLUMNS}
        rows = tuple(
            Row(
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
    return Status(time, agent.late, {pool.name: (pool.cpu, pool.memory) for pool in pools}, rows)


def write_status(status: Status, path: Path | None = None) -> None:
    """Keep it where `read_status` looks."""
    write_whole(path or _place(), json.dumps(asdict(status)))


def read_status(now: float, path: Path | None = None) -> Status:
    """The latest snapshot; an error where no agent has written one lately."""
    place = path or _place()
    try:
        told = json.loads(place.read_text(encoding="utf-8"))
        rows = tuple(Row(**row) for row in told["rows"])
        status = Status(told["time"], told["late"], {k: tuple(v) for k, v in told["caps"].items()}, rows)
    except FileNotFoundError:
        raise NotFoundError("no agent runs here; start one with trimtab agent --pools FILE") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise NotFoundError(f"{place} is not what an agent writes; start trimtab agent anew") from None
    if now - status.time > STALE:
        raise NotFoundError(f"the agent was last heard of {now - status.time:.0f} s ago; start it again")
    return status


def _place() -> Path:
    return home() / "agent.json"
