"""All operations, for one principal."""

from typing import Any

from trimtab.serve.access import Principal
from trimtab.serve.operations.catalog import Catalog, Models
from trimtab.serve.operations.decisions import Calibrations, Decisions
from trimtab.serve.operations.events import Alerts, Events, Services
from trimtab.serve.operations.fleet import Fabric, Fleet, Pools
from trimtab.serve.operations.jobs import Jobs
from trimtab.serve.operations.operation import AREAS, Backend
from trimtab.serve.operations.profiles import Profiles, Workloads
from trimtab.serve.operations.recommendations import Recommendations
from trimtab.serve.operations.tenants import Tenants, Tokens


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
