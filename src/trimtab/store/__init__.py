"""Where is it kept? Decisions and their outcomes, profiles, events, jobs; in SQLite or PostgreSQL."""

from trimtab.store.comparison import Comparison, compare
from trimtab.store.event import Event
from trimtab.store.facts import Facts
from trimtab.store.full import FullError
from trimtab.store.job_record import ACTIVE, JobRecord, JobRun, JobState, OutdatedError, Outlook, Part
from trimtab.store.leader import Leader, LostLeadError
from trimtab.store.look import Look, look_at_store
from trimtab.store.page import Page
from trimtab.store.reply import Reply, ReusedKeyError
from trimtab.store.store import Store, open_store
from trimtab.store.tenant import Tenant
from trimtab.store.token import NotAllowedError, Role, Token
from trimtab.store.wanted import WantedDecisions, WantedEvents, WantedJobs, WantedProfiles

__all__ = [
    "ACTIVE",
    "Comparison",
    "Event",
    "Facts",
    "FullError",
    "JobRecord",
    "JobRun",
    "JobState",
    "Leader",
    "Look",
    "LostLeadError",
    "NotAllowedError",
    "OutdatedError",
    "Outlook",
    "Page",
    "Part",
    "Reply",
    "ReusedKeyError",
    "Role",
    "Store",
    "Tenant",
    "Token",
    "WantedDecisions",
    "WantedEvents",
    "WantedJobs",
    "WantedProfiles",
    "compare",
    "look_at_store",
    "open_store",
]
