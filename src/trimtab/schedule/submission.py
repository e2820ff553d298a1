"""A job as it is handed in: what is to be scheduled, and how its command is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimtab.core import from_plain, to_plain
from trimtab.schedule.job import Job
from trimtab.store import JobRecord, JobState


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, the folder its command runs in, its environment, and how often it is tried again when it fails.

    `passed` are names of variables that come from the scheduler's own environment when the job is launched:
    their values are kept nowhere.
    """

    job: Job
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    retries: int = 0

    def named(self, id: str, submitted: float) -> "Submission":
        """The same, with an id and a time of submission (seconds since the epoch)."""
        return replace(self, job=replace(self.job, id=id, submitted=submitted))

    def record(self) -> JobRecord:
        """For the store: it waits."""
        work = self.job.workload
        return JobRecord(
            id=self.job.id,
            created=self.job.submitted,
            name=work.name,
            tenant=work.tenant,
            application=self.job.application,
            state=JobState.WAITING,
            spec=to_plain(self),
        )


def submission_of(record: JobRecord) -> Submission:
    """What was handed in."""
    return from_plain(Submission, record.spec, f"job {record.id}")
