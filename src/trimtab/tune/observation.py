"""What a trial showed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.core import BadInputError


@dataclass(frozen=True, slots=True)
class Observation:
    """Seconds that the whole workload takes there, by a trial of some part of it.

    `fidelity` is that part: 1 is a full trial, less is noisier. Of a trial that failed (`ok` is false),
    `seconds` is when it ended, or NaN. `metrics` are what it showed, named as in `predict.fewshot.METRICS`.
    """

    row: int
    seconds: float
    ok: bool = True
    fidelity: float = 1.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.row < 0:
            raise BadInputError(f"row {self.row} is no configuration; rows count from 0")
        if self.ok and not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise BadInputError(
                f"a trial of row {self.row} took {self.seconds:g} seconds; times are above zero"
            )
        if not 0 < self.fidelity <= 1:
            raise BadInputError(
                f"a trial of row {self.row} has fidelity {self.fidelity:g}; it is above 0, up to 1"
            )
