from .pipeline import Asked as Asked, Pipeline as Pipeline, Request as Request, Stage as Stage
from .quantity import (
    format_cpu as format_cpu,
    format_memory as format_memory,
    parse_accelerators as parse_accelerators,
    parse_quantity as parse_quantity,
)
from .reading import (
    read_pipeline as read_pipeline,
    work_folder as work_folder,
    write_requests as write_requests,
)
from .report import pipeline_report as pipeline_report
from .running import (
    InterruptedRunError as InterruptedRunError,
    RunSettings as RunSettings,
    StageProgress as StageProgress,
    profile_stages as profile_stages,
)
from .sizing import (
    RULE as RULE,
    Reserved as Reserved,
    Rule as Rule,
    Sized as Sized,
    Use as Use,
    reserved_ways as reserved_ways,
    size as size,
    stage_decision as stage_decision,
    use_of as use_of,
)
