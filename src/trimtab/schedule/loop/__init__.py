"""The scheduler at work: jobs from the store, a policy's decisions, an engine that carries them out."""

from trimtab.schedule.loop.fleet import Fleet
from trimtab.schedule.loop.history import History, Left
from trimtab.schedule.loop.only import Post, only_scheduler
from trimtab.schedule.loop.places import JobFiles
from trimtab.schedule.loop.scheduler import NOTE, Scheduler
from trimtab.schedule.loop.settings import LoopSettings
from trimtab.schedule.loop.wishes import Running, cancel_job, hand_in, running_scheduler

__all__ = [
    "NOTE",
    "Fleet",
    "History",
    "JobFiles",
    "Left",
    "LoopSettings",
    "Post",
    "Running",
    "Scheduler",
    "cancel_job",
    "hand_in",
    "only_scheduler",
    "running_scheduler",
]
