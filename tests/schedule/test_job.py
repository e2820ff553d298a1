"""Jobs: their speeds, declared, measured or by peak rates, and their columns."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from job_texts import parse_jobs

from trimtab.schedule import Cluster, GangShape, JobColumns, NodeGroup
from trimtab.schedule.job import Job, speeds_of


def job(text: str = "") -> Job:
    (found,) = parse_jobs(f"name: a\ncommand: 'true'\n{text}", "job.yaml")
    return found.job


def test_what_is_told_goes_before_what_is_measured() -> None:
    speeds = speeds_of(job("speeds: {t4: 5}"), {"t4": 3.0, "a100": 12.0})
    assert (speeds.one("t4"), speeds.one("a100")) == (5.0, 12.0)
    assert speeds.own


def test_a_kind_nobody_has_tried_goes_by_peak_rates() -> None:
    assert speeds_of(job(), {"t4": 3.0}).one("a100") == pytest.approx(3 * 312 / 65)


def test_of_a_job_nobody_knows_only_kinds_can_be_compared() -> None:
    speeds = speeds_of(job(), {})
    assert not speeds.own
    assert speeds.one("a100") / speeds.one("t4") == pytest.approx(312 / 65)
    assert speeds.one("nobody-has-published-this") == speeds.one("t4") == pytest.approx(1.0)


@given(st.integers(1, 512), st.integers(1, 512))
def test_more_workers_are_faster_together_and_slower_each(few: int, many: int) -> None:
    few, many = sorted((few, many))
    speeds = speeds_of(job(), {"t4": 3.0})
    assert speeds.of("t4", few) <= speeds.of("t4", many)
    assert speeds.of("t4", few) / few >= speeds.of("t4", many) / many


CLUSTER = Cluster((NodeGroup("a", "a", 1, 4, 8.0, 1.0),), (GangShape(0, 1), GangShape(0, 2)))


def test_rows_are_jobs_and_demand_is_of_one_worker(round_of: Callable[..., JobColumns]) -> None:
    jobs = round_of(CLUSTER, [{"gpus": 0.5, "cpus": 2.0, "memory": 3.0}, {"gpus": 4.0}])
    assert len(jobs) == 2
    assert jobs.demand.tolist() == [[0.5, 2.0, 3.0], [4.0, 1.0, 0.0]]
    assert jobs.speed.shape == (2, 2)
