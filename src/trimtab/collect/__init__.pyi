from .functions.collection import (
    SIZES as SIZES,
    Collection as Collection,
    collect_functions as collect_functions,
)
from .functions.lane import Effort as Effort
from .functions.law import LAWS as LAWS
from .shapes.local_run import run_locally as run_locally
from .shapes.measuring import (
    Summary as Summary,
    Turn as Turn,
    collect_shapes as collect_shapes,
    look as look,
    usual_seconds as usual_seconds,
)
from .shapes.points import (
    DIVERGED as DIVERGED,
    FAILED as FAILED,
    NO_STEPS as NO_STEPS,
    OK as OK,
    OUT_OF_MEMORY as OUT_OF_MEMORY,
    TIMED_OUT as TIMED_OUT,
)
from .shapes.spec import (
    Shape as Shape,
    Spec as Spec,
    TrainingGang as TrainingGang,
    TrainingJob as TrainingJob,
    read_spec as read_spec,
)
from .shapes.workers import (
    Step as Step,
    StepLines as StepLines,
    TrainingWorkers as TrainingWorkers,
    WorkerEndedError as WorkerEndedError,
    started as started,
    steps_within as steps_within,
)
