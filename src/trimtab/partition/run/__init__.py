"""Does it really train like that? Stages as processes, compared with the whole model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.run.processes import RunFailedError
    from trimtab.partition.run.report import RankReport, RunReport
    from trimtab.partition.run.running import RunSettings, run
    from trimtab.partition.run.stages import stage_modules

__all__ = ["RankReport", "RunFailedError", "RunReport", "RunSettings", "run", "stage_modules"]

_LAZY = {
    "RankReport": "report",
    "RunFailedError": "processes",
    "RunReport": "report",
    "RunSettings": "running",
    "run": "running",
    "stage_modules": "stages",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
