from .functions.collection import (
    SIZES as SIZES,
    Collection as Collection,
    collect_functions as collect_functions,
)
from .functions.effort import Effort as Effort
from .functions.law import LAWS as LAWS
from .shapes.collection import (
    Collected as Collected,
    collect_shapes as collect_shapes,
    usual_seconds as usual_seconds,
)
from .shapes.local_run import run_locally as run_locally
from .shapes.point import (
    DIVERGED as DIVERGED,
    FAILED as FAILED,
    NO_STEPS as NO_STEPS,
    OK as OK,
    OUT_OF_MEMORY as OUT_OF_MEMORY,
    TIMED_OUT as TIMED_OUT,
)
from .shapes.spec import (
    Lane as Lane,
    Shape as Shape,
    Spec as Spec,
    TrainingJob as TrainingJob,
    read_spec as read_spec,
)
from .shapes.step_lines import Step as Step, StepLines as StepLines
from .shapes.turn import Summary as Summary, Turn as Turn, look as look
from .shapes.watched import Watched as Watched, steps_within as steps_within
from .shapes.workers import WorkerEndedError as WorkerEndedError, started as started
