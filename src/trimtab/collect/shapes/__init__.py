"""Training jobs under shapes of machines: real workers in control groups, their steps timed and priced."""

from trimtab.collect.shapes.collection import Collected, collect_shapes, usual_seconds
from trimtab.collect.shapes.lane import measure
from trimtab.collect.shapes.local_run import LocalRun, LocalRuns, LocalSeries, run_locally
from trimtab.collect.shapes.point import (
    COLUMNS,
    DIVERGED,
    FAILED,
    NO_STEPS,
    OK,
    OUT_OF_MEMORY,
    TIMED_OUT,
    Point,
)
from trimtab.collect.shapes.point_file import PointFile
from trimtab.collect.shapes.spec import Lane, Shape, Spec, TrainingJob, read_spec
from trimtab.collect.shapes.step_lines import Step, StepLines
from trimtab.collect.shapes.turn import Summary, Turn, look
from trimtab.collect.shapes.watched import Watched, steps_within
from trimtab.collect.shapes.workers import WorkerEndedError, Workers, started

__all__ = [
    "COLUMNS",
    "DIVERGED",
    "FAILED",
    "NO_STEPS",
    "OK",
    "OUT_OF_MEMORY",
    "TIMED_OUT",
    "Collected",
    "Lane",
    "LocalRun",
    "LocalRuns",
    "LocalSeries",
    "Point",
    "PointFile",
    "Shape",
    "Spec",
    "Step",
    "StepLines",
    "Summary",
    "TrainingJob",
    "Turn",
    "Watched",
    "WorkerEndedError",
    "Workers",
    "collect_shapes",
    "look",
    "measure",
    "read_spec",
    "run_locally",
    "started",
    "steps_within",
    "usual_seconds",
]
