"""The use cases: command line, API and dashboard call these; each operation checks its principal."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from trimtab.serve.access import Principal
from trimtab.serve.operations.catalog import (
    SORT_COLUMNS,
    CatalogOperations,
    ModelOperations,
    ModelVersion,
    find_offers,
)
from trimtab.serve.operations.decisions import (
    CalibrationOperations,
    DecisionCalibration,
    DecisionOperations,
    OutcomeLearner,
    calibrations,
)
from trimtab.serve.operations.events import (
    AlertOperations,
    EventOperations,
    Happening,
    ServiceOperations,
    visible,
)
from trimtab.serve.operations.fleet import FabricOperations, FleetOperations, PoolNow, PoolOperations
from trimtab.serve.operations.jobs import LARGEST_PIECE, JobOperations, LogPiece
from trimtab.serve.operations.operation import AREAS, AUDIT, Area, Backend, Operation, encoded
from trimtab.serve.operations.profiles import ProfileOperations, WorkloadOperations
from trimtab.serve.operations.recommendations import (
    RecommendationOperations,
    Recommended,
    plan_partition,
    recommend_configuration,
)
from trimtab.serve.operations.tenants import TenantOperations, TokenOperations

# Every module here is imported, so that a new area is served as soon as its file exists.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "AREAS",
    "AUDIT",
    "LARGEST_PIECE",
    "SORT_COLUMNS",
    "AllOperations",
    "Area",
    "Backend",
    "DecisionCalibration",
    "Happening",
    "LogPiece",
    "ModelVersion",
    "Operation",
    "OutcomeLearner",
    "PoolNow",
    "Recommended",
    "Service",
    "calibrations",
    "encoded",
    "find_offers",
    "plan_partition",
    "recommend_configuration",
    "visible",
]


class AllOperations:
    """All areas: of a `Service` here, or of a `Client` of a server."""

    alerts: AlertOperations
    calibration: CalibrationOperations
    catalog: CatalogOperations
    decisions: DecisionOperations
    events: EventOperations
    fabric: FabricOperations
    fleet: FleetOperations
    jobs: JobOperations
    models: ModelOperations
    pools: PoolOperations
    profiles: ProfileOperations
    recommendations: RecommendationOperations
    services: ServiceOperations
    tenants: TenantOperations
    tokens: TokenOperations
    workloads: WorkloadOperations


class Service(AllOperations):
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
