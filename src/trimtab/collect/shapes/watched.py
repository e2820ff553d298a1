"""Workers that can be looked at while they train, wherever they run."""

import time
from typing import Protocol

from trimtab.collect.shapes.step_lines import StepLines


class Watched(Protocol):
    """What the first worker prints, and what all of them have used so far."""

    @property
    def lines(self) -> StepLines: ...

    def listen(self, seconds: float) -> None:
        """Take in what is printed, for so long at most; raises `WorkerEndedError` when a worker has ended."""
        ...

    def cpu_seconds(self) -> float:
        """CPU time of all of them so far."""
        ...

    def throttled_seconds(self) -> float:
        """How long quotas have held them up so far, all added."""
        ...

    def memory(self) -> float:
        """Bytes the largest of them has in use."""
        ...

    def bytes_sent(self) -> float:
        """What they have sent one another so far."""
        ...


def steps_within(workers: Watched, count: int, patience: float) -> bool:
    """Wait until they have made so many steps more; whether they did within so many seconds."""
    wanted = len(workers.lines.steps) + count
    until = time.monotonic() + patience
    while len(workers.lines.steps) < wanted:
        left = until - time.monotonic()
        if left <= 0:
            return False
        workers.listen(min(left, 0.1))
    return True
