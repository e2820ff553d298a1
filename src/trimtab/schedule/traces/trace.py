"""A trace: jobs as somebody really submitted them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Job

ANY_KIND = ""
"""In `Job.speeds`: on accelerators of any kind that is not named, and on none."""

SECONDS_ANYWHERE = {ANY_KIND: 1.0}
"""Speeds of a job whose work is told in seconds of one worker, wherever that is."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, the cluster they were meant for where it is told, and what was put right.

    `batch_sizes` are samples per step that users asked for, by job, where told.
    """

    name: str
    jobs: tuple[Job, ...]
    groups: tuple[Group, ...] = ()
    notes: tuple[str, ...] = ()
    batch_sizes: Mapping[str, int] = field(default_factory=dict)

    def elastic(self, most: int) -> "Trace":
        """The same jobs, each content with any number of workers up to `most`."""
        return replace(self, jobs=tuple(replace(job, least=1, most=most) for job in self.jobs))
