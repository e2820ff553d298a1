"""What nobody measured for the model at hand, each with its reason."""

from dataclasses import dataclass, field

from trimtab.predict import ScaleOutAssumptions


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Ratios unless said otherwise."""

    links: ScaleOutAssumptions = field(default_factory=ScaleOutAssumptions)
    """What large messages get of a link, and what of a collective hides behind the work beside it."""
    results_alive: float = 2.0
    """Largest results of a stage that are alive at once beside what is kept: it, and its gradient."""
    correction: tuple[tuple[str, float, float], ...] = ()
    """What runs showed, by kind of device: forward and backward times relative to the formulas."""
    overlapped: bool = True
    """Whether a stage computes while it sends and receives; otherwise it waits for what it sends."""

    def corrected(self, kind: str) -> tuple[float, float]:
        """Factors on forward and backward times of a kind of device."""
        return next(((ahead, back) for name, ahead, back in self.correction if name == kind), (1.0, 1.0))
