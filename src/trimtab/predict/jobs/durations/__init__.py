"""How much work has a job left? Learned from jobs that have ended, behind a guard."""

from trimtab.predict.jobs.durations.learned import Durations, GuardedLeft, JobFeatures, WorkLeft

__all__ = ["Durations", "GuardedLeft", "JobFeatures", "WorkLeft"]
