from .pipeline import Pipeline as Pipeline
from .quantity import (
    format_cpu as format_cpu,
    format_memory as format_memory,
    parse_accelerators as parse_accelerators,
)
from .reading import (
    read_pipeline as read_pipeline,
    work_folder as work_folder,
    write_requests as write_requests,
)
from .report import pipeline_report as pipeline_report
from .running import (
    InterruptedRunError as InterruptedRunError,
    ProfilingSettings as ProfilingSettings,
    StageProgress as StageProgress,
    profile_stages as profile_stages,
)
from .sizing import (
    RULE as RULE,
    Reserved as Reserved,
    Sized as Sized,
    SizingRule as SizingRule,
    reserved_ways as reserved_ways,
    size as size,
    stage_decision as stage_decision,
)
