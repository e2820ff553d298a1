"""What a simulated cluster's jobs really do, as the simulator asks for it."""

from dataclasses import dataclass
from typing import Protocol

from trimtab.schedule.cluster import Floats, Ints
from trimtab.schedule.placing import Placement


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What may be known about jobs at a moment, row by row: see `Jobs` for the columns."""

    speed: Floats
    most: Ints
    done: Floats
    remaining: Floats
    remaining_low: Floats
    remaining_high: Floats


class World(Protocol):
    """How jobs progress. Jobs go by their index in the trace."""

    def look(self, jobs: Ints) -> Look:
        """What a scheduler may know about these jobs now."""
        ...

    def restart_seconds(self, job: int) -> float:
        """How long a job holds its accelerators before it works, whenever it starts or changes its form."""
        ...

    def start(self, job: int, placement: Placement) -> None:
        """From now on the job runs so."""
        ...

    def stop(self, job: int, lost: float) -> None:
        """From now on the job does not run; `lost` seconds of its last work were not saved."""
        ...

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        """Let each job work so long; after how many seconds it was done, infinite where it goes on."""
        ...
