"""What jobs that have ended teach about those that have not."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from trimtab.predict import Durations, JobFeatures, WorkLeft
from trimtab.schedule.job import Job
from trimtab.store import JobRecord

Left = Callable[[Sequence[JobFeatures], Sequence[float]], WorkLeft]
"""How many units jobs have left that have done so many."""


class History:
    """Measured rates of ended jobs by application, and what is learned from how much work they were."""

    def __init__(self) -> None:
        self._durations = Durations()
        self._rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._medians: dict[str, Mapping[str, float]] = {}

    def learn(self, record: JobRecord, job: Job) -> None:
        """One more has ended."""
        self._durations.ended(features(job), record.done)
        self._medians.pop(record.application, None)
        for kind, rate in record.run.rates.items():
            self._rates[record.application][kind].append(rate)

    def rates(self, application: str) -> Mapping[str, float]:
        """Units per second of one worker on each kind of accelerator: medians of those that have ended."""
        if application not in self._medians:
            known = self._rates.get(application, {})
            self._medians[application] = {kind: statistics.median(rates) for kind, rates in known.items()}
        return self._medians[application]

    def left(self, jobs: Sequence[JobFeatures], done: Sequence[float]) -> WorkLeft:
        """What jobs have left, as those that have ended teach; NaN where none of their application has."""
        return self._durations.left_many(jobs, done)


def features(job: Job) -> JobFeatures:
    """What ended jobs are compared by."""
    return JobFeatures(job.application, job.workload.tenant, job.least * (job.worker.gpus or 1.0))
