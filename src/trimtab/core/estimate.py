"""A number that knows it is a guess."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """`value`, and the range `low` to `high` that should hold the truth in a share `coverage` of cases."""

    value: float
    low: float
    high: float
    coverage: float
    unit: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an estimate of {self.value} outside its own range {self.low} to {self.high}")
        if not 0.0 < self.coverage <= 1.0:
            raise ValueError(f"a coverage of {self.coverage} is not a share between 0 and 1")

    def scaled(self, factor: float, unit: str | None = None) -> "Estimate":
        """The same guess in another unit: seconds into dollars, say."""
        if factor < 0:
            raise ValueError("an estimate cannot be scaled by a negative factor")
        return Estimate(
            self.value * factor, self.low * factor, self.high * factor, self.coverage, unit or self.unit
        )

    def contains(self, truth: float) -> bool:
        """Whether the range held."""
        return self.low <= truth <= self.high
