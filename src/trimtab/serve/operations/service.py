"""Everything that can be asked of Trimtab, for one who asks. Adding an area is a file and a line here."""

from trimtab.serve.operations.calibration import Calibrations
from trimtab.serve.operations.catalog import Catalog
from trimtab.serve.operations.decisions import Decisions
from trimtab.serve.operations.desk import Desk
from trimtab.serve.operations.events import Events
from trimtab.serve.operations.fleet import Fabric, Fleet, Pools
from trimtab.serve.operations.happenings import Alerts, Services
from trimtab.serve.operations.jobs import Jobs
from trimtab.serve.operations.models import Models
from trimtab.serve.operations.profiles import Profiles
from trimtab.serve.operations.recommendations import Recommendations
from trimtab.serve.operations.tenants import Tenants
from trimtab.serve.operations.tokens import Tokens
from trimtab.serve.operations.workloads import Workloads
from trimtab.serve.principal import Principal


class Service:
    """The areas at a desk, as far as `principal` may use them."""

    def __init__(self, desk: Desk, principal: Principal) -> None:
        self.desk = desk
        self.principal = principal

    @property
    def alerts(self) -> Alerts:
        """What somebody should look at."""
        return Alerts(self.desk, self.principal)

    @property
    def calibration(self) -> Calibrations:
        """How good decisions were."""
        return Calibrations(self.desk, self.principal)

    @property
    def catalog(self) -> Catalog:
        """What can be rented."""
        return Catalog(self.desk, self.principal)

    @property
    def decisions(self) -> Decisions:
        """What was decided, and what became of it."""
        return Decisions(self.desk, self.principal)

    @property
    def events(self) -> Events:
        """What happened."""
        return Events(self.desk, self.principal)

    @property
    def fabric(self) -> Fabric:
        """Hosts' networks."""
        return Fabric(self.desk, self.principal)

    @property
    def fleet(self) -> Fleet:
        """The scheduler and its nodes."""
        return Fleet(self.desk, self.principal)

    @property
    def jobs(self) -> Jobs:
        """What runs, waits and has ended."""
        return Jobs(self.desk, self.principal)

    @property
    def models(self) -> Models:
        """Versions of learned weights."""
        return Models(self.desk, self.principal)

    @property
    def pools(self) -> Pools:
        """Containers that share CPUs and memory."""
        return Pools(self.desk, self.principal)

    @property
    def profiles(self) -> Profiles:
        """What short local runs showed."""
        return Profiles(self.desk, self.principal)

    @property
    def recommendations(self) -> Recommendations:
        """What to rent."""
        return Recommendations(self.desk, self.principal)

    @property
    def services(self) -> Services:
        """What is scaled."""
        return Services(self.desk, self.principal)

    @property
    def tenants(self) -> Tenants:
        """Who shares the fleet."""
        return Tenants(self.desk, self.principal)

    @property
    def tokens(self) -> Tokens:
        """Who may ask for what."""
        return Tokens(self.desk, self.principal)

    @property
    def workloads(self) -> Workloads:
        """What people want to run."""
        return Workloads(self.desk, self.principal)
