"""What a run showed."""

from dataclasses import dataclass

from trimtab.partition.run.ranks import Place

TOLERANCE = 1e-5
"""How far a loss may be from the whole model's, relative to the larger of 1 and the loss."""
WEIGHT_TOLERANCE = 1e-4
"""How far any weight may be from the whole model's after the run."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """One process: median seconds of a micro-batch's forward and backward pass, bytes its memory grew by."""

    place: Place
    forward: float
    backward: float
    memory: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """Losses of a run and of the whole model, how far they are apart, and what was measured.

    `seconds` is the median of the steps after the first; `steps` holds all of them. `whole_forward` and
    `whole_backward` are seconds of the whole model for the first replica's share of a micro-batch, in one
    process with as many threads. `weights` is the largest difference of any weight or buffer after the run.
    """

    losses: tuple[float, ...]
    whole_losses: tuple[float, ...]
    difference: float
    weights: float
    seconds: float
    steps: tuple[float, ...]
    ranks: tuple[RankReport, ...]
    whole_forward: float
    whole_backward: float
    threads: int
    pinned: bool
    notes: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the run computed what the whole model does."""
        return self.difference <= TOLERANCE and self.weights <= WEIGHT_TOLERANCE


def largest_difference(losses: tuple[float, ...], others: tuple[float, ...]) -> float:
    """The largest difference of two rows of losses, relative to the larger of 1 and the loss."""
    pairs = zip(losses, others, strict=True)
    return max((abs(a - b) / max(1.0, abs(b)) for a, b in pairs), default=0.0)
