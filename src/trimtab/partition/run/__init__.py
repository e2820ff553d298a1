"""Does it really train like that? Stages as processes, compared with the whole model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.run.launched import Training, train_launched
    from trimtab.partition.run.links import Link, measure_link
    from trimtab.partition.run.prediction import predicted_here
    from trimtab.partition.run.processes import RunFailedError
    from trimtab.partition.run.report import RankReport, RunReport
    from trimtab.partition.run.running import RunSettings, run_plan
    from trimtab.partition.run.stages import stage_modules
    from trimtab.partition.run.timing import StageTime, time_stages

__all__ = [
    "Link",
    "RankReport",
    "RunFailedError",
    "RunReport",
    "RunSettings",
    "StageTime",
    "Training",
    "measure_link",
    "predicted_here",
    "run_plan",
    "stage_modules",
    "time_stages",
    "train_launched",
]

_LAZY = {
    "Link": "links",
    "RankReport": "report",
    "RunFailedError": "processes",
    "RunReport": "report",
    "RunSettings": "running",
    "StageTime": "timing",
    "Training": "launched",
    "measure_link": "links",
    "predicted_here": "prediction",
    "run_plan": "running",
    "stage_modules": "stages",
    "time_stages": "timing",
    "train_launched": "launched",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
