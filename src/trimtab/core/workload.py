"""What someone wants to run."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a workload is for."""

    TRAINING = "training"
    INFERENCE = "inference"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Workload:
    """What someone wants to run. `deadline` is in seconds from submission; a higher `priority` goes first."""

    name: str
    kind: Kind = Kind.TRAINING
    tenant: str = "default"
    priority: int = 0
    deadline: float | None = None
    command: tuple[str, ...] = ()
