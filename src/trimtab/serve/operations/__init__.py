"""The use cases: command line, API and dashboard call these, for a principal that each operation checks."""

from importlib import import_module
from pkgutil import iter_modules

from trimtab.serve.operations.catalog import ModelVersion
from trimtab.serve.operations.decisions import Calibration, OutcomeLearner, calibrations
from trimtab.serve.operations.events import Happening, visible
from trimtab.serve.operations.fleet import PoolNow
from trimtab.serve.operations.jobs import LARGEST_PIECE, LogPiece
from trimtab.serve.operations.operation import AREAS, AUDIT, Area, Backend, Operation
from trimtab.serve.operations.recommendations import plan_partition, rank_configurations
from trimtab.serve.operations.service import Operations, Service

# Every module here is imported, so that a new area is served as soon as its file exists.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "AREAS",
    "AUDIT",
    "LARGEST_PIECE",
    "Area",
    "Backend",
    "Calibration",
    "Happening",
    "LogPiece",
    "ModelVersion",
    "Operation",
    "Operations",
    "OutcomeLearner",
    "PoolNow",
    "Service",
    "calibrations",
    "plan_partition",
    "rank_configurations",
    "visible",
]
