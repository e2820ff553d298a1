"""A request for recommendations: objective, limits, assumptions, and the length of the job."""

from dataclasses import dataclass

from trimtab.catalog import ARCHITECTURES
from trimtab.core import BadInputError, Goal, Profile
from trimtab.recommend.layouts import DEFAULT_SAVERS, SAVERS, WAYS, check_names

_FALLBACK_SAMPLES = 1_000_000.0  # of a job of unknown length


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Quantities that no profile shows, in seconds; the command line can set them."""

    startup: float = 180.0
    """From paying for a machine to the first step: boot, image, data."""
    startup_range: tuple[float, float] = (90.0, 480.0)
    """Holds the start-up time in nine cases of ten."""
    interruptions_per_hour: float = 0.05
    """Of one spot machine."""
    restart: float = 300.0
    """From losing a spot machine to resuming."""
    checkpoint_every: float = 1800.0


@dataclass(frozen=True, slots=True)
class Request(Goal):
    """Objective, limits (seconds and dollars) and eligible configurations."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    architecture: str | None = None
    """CPU architecture of the machines, x86_64 or arm64; x86_64 by default, as most images need it."""
    spot: bool = False
    max_nodes: int | None = None
    max_devices: int | None = None
    """If both are unset, several devices are considered only for a script that ran as several workers."""
    parallel: tuple[str, ...] = ()
    """Ways to spread the model, of `WAYS`. Unset, all of them, but only where one device cannot hold it."""
    save_memory: tuple[str, ...] = DEFAULT_SAVERS
    """Ways to save memory that may be used, of `SAVERS`."""
    batch_sizes: tuple[int, ...] = ()
    precision: str | None = None
    assume: Assumptions = Assumptions()

    def __post_init__(self) -> None:
        Goal.__post_init__(self)
        for name, value in (("max-nodes", self.max_nodes), ("max-devices", self.max_devices)):
            if value is not None and value < 1:
                raise BadInputError(f"--{name} is {value}; it should be at least 1")
        check_names("--parallel", self.parallel, WAYS)
        check_names("--save-memory", self.save_memory, SAVERS)
        if self.architecture is not None and self.architecture not in ARCHITECTURES:
            raise BadInputError(
                f'--arch is "{self.architecture}"; it should be one of {", ".join(ARCHITECTURES)}'
            )
        if any(b < 1 for b in self.batch_sizes):
            raise BadInputError("a batch has at least one sample")


@dataclass(frozen=True, slots=True)
class Work:
    """The length of the job in samples, and a sentence on its source; `shown` if not assumed."""

    samples: float
    source: str
    shown: bool = True


def work(
    profile: Profile, epochs: float | None = None, steps: int | None = None, samples: float | None = None
) -> Work:
    """The job's length: the user's, else the profiled script's, else a default."""
    script = profile.steps
    per_step = script.batch_size * script.workers if script else 1
    for name, value in (("epochs", epochs), ("steps", steps), ("samples", samples)):
        if value is not None and value <= 0:
            raise BadInputError(f"--{name} is {value:g}; it should be more than zero")
    if samples is not None:
        return Work(float(samples), f"{samples:,.0f} samples, as requested")
    if steps is not None:
        return Work(float(steps * per_step), f"{steps:,} steps of {per_step:,} samples, as requested")
    length = script.dataset_length if script else None
    if epochs is not None:
        if not length:
            raise BadInputError(
                "the run did not show the size of its data set; say --samples instead of --epochs"
            )
        return Work(epochs * length, f"{epochs:g} epochs of {length:,} samples, as requested")
    if script and script.epochs and length:
        return Work(
            script.epochs * length, f"{script.epochs:g} epochs of {length:,} samples, as the script showed"
        )
    if script and script.total_steps:
        return Work(
            float(script.total_steps * per_step),
            f"{script.total_steps:,} steps of {per_step:,} samples, as the script showed",
        )
    if length:
        return Work(float(length), f"one epoch of {length:,} samples; say --epochs for more", False)
    return Work(
        _FALLBACK_SAMPLES,
        f"{_FALLBACK_SAMPLES:,.0f} samples, because the script did not show its length;"
        " say --epochs, --steps or --samples",
        False,
    )
