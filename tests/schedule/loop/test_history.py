"""What ended jobs teach: rates, and what is left."""

from dataclasses import replace

import numpy as np

from trimtab.schedule import Job, parse_jobs
from trimtab.schedule.loop.view import JobHistory, features
from trimtab.store import JobRecord, JobRun, JobState


def job(application: str = "resnet") -> Job:
    (found,) = parse_jobs(f"name: {application}\ncommand: 'true'\nresources: {{gpus: 2}}", "job.yaml")
    return found.job


def ended(work: float, **rates: float) -> JobRecord:
    record = JobRecord("a", 0.0, "a", "vision", "resnet", JobState.ENDED, {}, done=work)
    return replace(record, run=JobRun(rates=rates))


def history(*records: JobRecord) -> JobHistory:
    learned = JobHistory()
    for record in records:
        learned.learn(record, job())
    return learned


def test_what_is_left_comes_from_ended_jobs_of_the_application() -> None:
    learned = history(*(ended(work) for work in (100.0, 110.0, 120.0, 130.0, 140.0)))
    found = learned.left([features(job()), features(job("bert"))], [90.0, 0.0])
    assert 10.0 <= found.value[0] <= 50.0
    assert found.low[0] <= found.value[0] <= found.high[0]
    assert np.isnan(found.value[1])


def test_rates_are_medians_of_those_measured() -> None:
    learned = history(ended(1.0, t4=2.0), ended(1.0, t4=4.0, a100=9.0), ended(1.0, t4=3.0))
    assert learned.rates("resnet") == {"t4": 3.0, "a100": 9.0}
    assert learned.rates("bert") == {}
