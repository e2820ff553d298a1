"""A row of the data set: a job under one shape, with a batch and a number of workers."""

from dataclasses import dataclass, fields

from trimtab.collect.shapes.spec import Lane, Shape

OK = "ok"
OUT_OF_MEMORY = "out-of-memory"
FAILED = "failed"
DIVERGED = "diverged"
NO_STEPS = "no-steps"
TIMED_OUT = "timed-out"

Key = tuple[str, str, int, int]
"""Job, shape, batch and workers."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured, per step and per worker, and what the whole job would take. SI units, dollars.

    `early_step_seconds` is of the window's first third, as a short trial would see it. `seconds` and `cost`
    are of the whole job. Where `status` is not ok, what was not measured is None.
    """

    job: str
    shape: str
    cpus: float
    memory_bytes: float
    workers: int
    batch: int
    status: str
    steps: int | None = None
    step_seconds: float | None = None
    early_step_seconds: float | None = None
    step_deviation: float | None = None  # of single steps, over their mean
    cpu_seconds_step: float | None = None
    throttled_share: float | None = None
    memory_peak_bytes: float | None = None  # of the largest worker
    bytes_step: float | None = None  # that a worker sends
    samples: float | None = None
    seconds: float | None = None
    price_per_hour: float | None = None  # of one machine
    price_date: str | None = None
    cost: float | None = None
    probe_seconds: float | None = None
    trial_seconds: float | None = None  # what measuring it took, its part of the start included
    measured_at: float | None = None
    attempts: int | None = None  # turns it had


COLUMNS = tuple(field.name for field in fields(Point))


def keys_of(lane: Lane, shapes: tuple[Shape, ...]) -> set[Key]:
    """The points of a lane."""
    return {(lane.job.name, shape.name, lane.batch, lane.workers) for shape in shapes}
