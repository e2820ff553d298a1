"""What the processes of a run are told, and what they report, as files in a folder."""

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from trimtab.partition.plan import Plan, Recipe
from trimtab.partition.run.groups import Ties
from trimtab.partition.run.ranks import Place
from trimtab.partition.run.samples import InputFacts, Outputs
from trimtab.partition.run.training import StepTimes


@dataclass(frozen=True, slots=True)
class Job:
    """What every process of a run is told. `cores[rank]` is where it is pinned; empty for nowhere."""

    target: str
    plan: Plan
    recipe: Recipe
    ties: Ties
    inputs: tuple[InputFacts, ...]
    outputs: Outputs
    steps: int
    seed: int
    device: str
    threads: int
    cores: tuple[tuple[int, ...], ...]
    timeout: float


@dataclass(slots=True)
class Result:
    """What a process reports: its part of every step's loss, times, peak memory, weights after."""

    place: Place
    times: StepTimes
    peak: float
    losses: list[float] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)


def stage_file(folder: Path, stage: int, share: int) -> Path:
    """Where the parent leaves a stage."""
    return folder / f"stage-{stage}-{share}.pickle"


def result_file(folder: Path, rank: int) -> Path:
    """Where a process leaves its result."""
    return folder / f"result-{rank}.pt"
