"""The scheduler at work: jobs from the store, a policy's decisions, an engine that carries them out."""

from trimtab.schedule.loop.fleet import Fleet
from trimtab.schedule.loop.history import Asked, History, Left
from trimtab.schedule.loop.places import JobFiles
from trimtab.schedule.loop.possible import impossible, refuse_impossible
from trimtab.schedule.loop.scheduler import NOTE, Scheduler
from trimtab.schedule.loop.settings import LoopSettings

__all__ = [
    "NOTE",
    "Asked",
    "Fleet",
    "History",
    "JobFiles",
    "Left",
    "LoopSettings",
    "Scheduler",
    "impossible",
    "refuse_impossible",
]
