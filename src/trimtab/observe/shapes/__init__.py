"""Training jobs under shapes of machines: real workers in control groups, their steps timed and priced."""

from trimtab.observe.shapes.collection import Collected, collect_shapes, usual_seconds
from trimtab.observe.shapes.lane import measure
from trimtab.observe.shapes.local_run import LocalRun, LocalRuns, LocalSeries, run_locally
from trimtab.observe.shapes.point import (
    COLUMNS,
    DIVERGED,
    FAILED,
    NO_STEPS,
    OK,
    OUT_OF_MEMORY,
    TIMED_OUT,
    Point,
)
from trimtab.observe.shapes.point_file import PointFile
from trimtab.observe.shapes.spec import Lane, Shape, Spec, TrainingJob, read_spec
from trimtab.observe.shapes.step_lines import Step, StepLines
from trimtab.observe.shapes.turn import Summary, Turn, look
from trimtab.observe.shapes.watched import Watched, steps_within
from trimtab.observe.shapes.workers import WorkerEndedError, Workers, started

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
