from .entities import (
    ACTIVE as ACTIVE,
    Comparison as Comparison,
    Event as Event,
    Facts as Facts,
    FullError as FullError,
    JobRecord as JobRecord,
    JobRun as JobRun,
    JobState as JobState,
    NotAllowedError as NotAllowedError,
    OutdatedError as OutdatedError,
    Outlook as Outlook,
    Page as Page,
    Part as Part,
    Reply as Reply,
    ReusedKeyError as ReusedKeyError,
    Role as Role,
    Tenant as Tenant,
    Token as Token,
    WantedDecisions as WantedDecisions,
    WantedEvents as WantedEvents,
    WantedJobs as WantedJobs,
    WantedProfiles as WantedProfiles,
    compare as compare,
)
from .leader import Leader as Leader, LostLeadError as LostLeadError
from .schema import Look as Look, look_at_store as look_at_store
from .store import Store as Store, open_store as open_store
