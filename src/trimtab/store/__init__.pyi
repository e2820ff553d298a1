from .comparison import Comparison as Comparison, compare as compare
from .event import Event as Event
from .facts import Facts as Facts
from .full import FullError as FullError
from .job_record import (
    ACTIVE as ACTIVE,
    JobRecord as JobRecord,
    JobRun as JobRun,
    JobState as JobState,
    OutdatedError as OutdatedError,
    Outlook as Outlook,
    Part as Part,
)
from .leader import Leader as Leader, LostLeadError as LostLeadError
from .look import Look as Look, look_at_store as look_at_store
from .page import Page as Page
from .reply import Reply as Reply, ReusedKeyError as ReusedKeyError
from .store import Store as Store, open_store as open_store
from .tenant import Tenant as Tenant
from .token import NotAllowedError as NotAllowedError, Role as Role, Token as Token
from .wanted import (
    WantedDecisions as WantedDecisions,
    WantedEvents as WantedEvents,
    WantedJobs as WantedJobs,
    WantedProfiles as WantedProfiles,
)
