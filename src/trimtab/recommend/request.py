"""A request for recommendations: an objective, limits, and how much there is to do."""

from dataclasses import dataclass

from trimtab.core import BadInputError, Goal, Profile

# Where the script shows no length, every configuration is ranked for the same round amount of work.
_FALLBACK_SAMPLES = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions about what no profile shows, in seconds; all can be set on the command line."""

    startup: float = 180.0
    """From paying for a machine to the first step."""
    interruptions_per_hour: float = 0.05
    """Of one spot machine."""
    restart: float = 300.0
    """From losing a spot machine to going on."""
    checkpoint_every: float = 1800.0


@dataclass(frozen=True, slots=True)
class Request(Goal):
    """Which configurations are eligible, and what makes one better. Seconds and dollars."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    spot: bool = False
    max_nodes: int | None = None
    max_devices: int | None = None
    """Unset, both follow the run: several only for a script that ran as several workers."""
    batch_sizes: tuple[int, ...] = ()
    precision: str | None = None
    assume: Assumptions = Assumptions()

    def __post_init__(self) -> None:
        Goal.__post_init__(self)
        for name, least in (("max_nodes", 1), ("max_devices", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise BadInputError(f"--{name.replace('_', '-')} is {value}; it should be at least {least}")
        if any(b < 1 for b in self.batch_sizes):
            raise BadInputError("a batch has at least one sample")


@dataclass(frozen=True, slots=True)
class Work:
    """How much there is to do, in samples, and where that number comes from."""

    samples: float
    source: str
    shown: bool = True


def work(
    profile: Profile, epochs: float | None = None, steps: int | None = None, samples: float | None = None
) -> Work:
    """The job's length: as the user says, else as the script showed, else a round number."""
    seen = profile.steps
    per_step = seen.batch_size * seen.workers if seen else 1
    for name, value in (("epochs", epochs), ("steps", steps), ("samples", samples)):
        if value is not None and value <= 0:
            raise BadInputError(f"--{name} is {value:g}; it should be more than zero")
    if samples is not None:
        return Work(float(samples), f"{samples:,.0f} samples as asked")
    if steps is not None:
        return Work(float(steps * per_step), f"{steps:,} steps of {per_step:,} samples as asked")
    length = seen.dataset_length if seen else None
    if epochs is not None:
        if not length:
            raise BadInputError(
                "the run did not show the size of its data set; say --samples instead of --epochs"
            )
        return Work(epochs * length, f"{epochs:g} epochs of {length:,} samples as asked")
    if seen and seen.epochs and length:
        return Work(
            seen.epochs * length, f"{seen.epochs:g} epochs of {length:,} samples, as the script showed"
        )
    if seen and seen.total_steps:
        return Work(
            float(seen.total_steps * per_step),
            f"{seen.total_steps:,} steps of {per_step:,} samples, as the script showed",
        )
    if length:
        return Work(float(length), f"one epoch of {length:,} samples; say --epochs for more", False)
    return Work(
        _FALLBACK_SAMPLES,
        f"{_FALLBACK_SAMPLES:,.0f} samples, because the script did not show its length;"
        " say --epochs, --steps or --samples",
        False,
    )
