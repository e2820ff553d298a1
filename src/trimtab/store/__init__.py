"""Where is it kept? Decisions and their outcomes, profiles, events, jobs; in SQLite or PostgreSQL."""

from trimtab.store.comparison import Comparison, compare
from trimtab.store.event import Event
from trimtab.store.job_record import ACTIVE, JobRecord, JobRun, JobState, OutdatedError, Outlook, Part
from trimtab.store.look import Look, look_at_store
from trimtab.store.store import Store, open_store
from trimtab.store.tenant import Tenant

__all__ = [
    "ACTIVE",
    "Comparison",
    "Event",
    "JobRecord",
    "JobRun",
    "JobState",
    "Look",
    "OutdatedError",
    "Outlook",
    "Part",
    "Store",
    "Tenant",
    "compare",
    "look_at_store",
    "open_store",
]
