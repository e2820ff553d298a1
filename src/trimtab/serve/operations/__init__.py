"""The use cases: command line, API and dashboard call these, for a principal that each operation checks."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from trimtab.serve.access import Principal
from trimtab.serve.operations.catalog import Catalog, Models, ModelVersion
from trimtab.serve.operations.decisions import (
    Calibration,
    Calibrations,
    Decisions,
    OutcomeLearner,
    calibrations,
)
from trimtab.serve.operations.events import Alerts, Events, Happening, Services, visible
from trimtab.serve.operations.fleet import Fabric, Fleet, PoolNow, Pools
from trimtab.serve.operations.jobs import LARGEST_PIECE, Jobs, LogPiece
from trimtab.serve.operations.operation import AREAS, AUDIT, Area, Backend, Operation
from trimtab.serve.operations.profiles import Profiles, Workloads
from trimtab.serve.operations.recommendations import Recommendations, plan_partition, rank_configurations
from trimtab.serve.operations.tenants import Tenants, Tokens

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


class Operations:
    """All areas: of a `Service` here, or of a `Client` of a server."""

    alerts: Alerts
    calibration: Calibrations
    catalog: Catalog
    decisions: Decisions
    events: Events
    fabric: Fabric
    fleet: Fleet
    jobs: Jobs
    models: Models
    pools: Pools
    profiles: Profiles
    recommendations: Recommendations
    services: Services
    tenants: Tenants
    tokens: Tokens
    workloads: Workloads


class Service(Operations):
    """The areas over a backend, as far as `principal` may use them; each is made when it is first used."""

    def __init__(self, backend: Backend, principal: Principal) -> None:
        self.backend = backend
        self.principal = principal

    def __getattr__(self, name: str) -> Any:
        if name not in AREAS:
            raise AttributeError(name)
        area = AREAS[name](self.backend, self.principal)
        setattr(self, name, area)
        return area
