"""What is kept of a run on this machine: its control group, what was given, its processes, its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab.engines.kept_run import KeptRun
from trimtab.kernel import LimitedGroup, read_process


@dataclass(frozen=True, slots=True)
class Given:
    """What one worker has: a node, and on it these accelerators, of each of them such a share."""

    node: str
    devices: tuple[int, ...] = ()
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Ground:
    """Where its control group is, and what each worker was given, by rank."""

    version: int
    folders: Mapping[str, str]
    given: tuple[Given, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """The workers' processes by rank; the one beside them by pid and start (clock ticks since boot)."""

    time: float
    pids: tuple[int, ...]
    keeper: int
    keeper_started: int


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: the exit status as a shell gives it (128 + signal), and out-of-memory kills."""

    time: float
    status: int
    kills: int


def group_of(run: KeptRun) -> LimitedGroup:
    """Its control group, which may be gone."""
    ground = run.read(Ground)
    if ground is None:
        return LimitedGroup(2, {})
    return LimitedGroup(ground.version, {name: Path(folder) for name, folder in ground.folders.items()})


def is_kept(run: KeptRun) -> bool:
    """Whether the process is there that will write down how it ends."""
    start = run.read(Start)
    keeper = read_process(start.keeper) if start else None
    return bool(start and keeper and keeper.started == start.keeper_started and not keeper.zombie)


def is_lost(run: KeptRun) -> bool:
    """Neither it nor the process beside it is there, though it had begun."""
    return run.read(Start) is not None and not is_kept(run) and not group_of(run).pids()
