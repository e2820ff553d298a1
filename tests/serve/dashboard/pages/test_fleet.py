"""What of the fleet is in use."""

import pytest

from trimtab.schedule import NodeGroup, SchedulerStatus
from trimtab.serve.dashboard.pages.fleet import (
    GROUPS,
    FleetView,
    figures,
    group_rows,
    node_rows,
    share_in_use,
)
from trimtab.serve.dashboard.widgets import table_rows
from trimtab.store import JobRecord, JobRun, JobState, Part


def job(id: str, group: str, parts: tuple[Part, ...], gpus: float, cpus: float = 1.0) -> JobRecord:
    spec = {"job": {"worker": {"gpus": gpus, "cpus": cpus}}}
    run = JobRun(parts=parts, group=group)
    return JobRecord(id, 0.0, f"job-{id}", "red", "app", JobState.RUNNING, spec, run=run)


@pytest.fixture
def now() -> FleetView:
    groups = (
        NodeGroup("a100", "A100", nodes=2, gpus=8, cpus=96, memory=1e12, price=8 / 3600),
        NodeGroup("cpu", "", nodes=1, gpus=0, cpus=4, memory=1e10, price=1 / 3600),
    )
    holding = (
        job("1", "a100", (Part("n1", 2), Part("n2", 2)), gpus=1),
        job("2", "a100", (Part("n1", 1),), gpus=4),
        job("3", "cpu", (Part("c1", 1),), gpus=0, cpus=1),
    )
    return FleetView(SchedulerStatus("local://", "trimtab", groups, True), holding, 3)


def test_shares_and_costs_are_of_accelerators_and_where_there_are_none_of_cpus(now: FleetView) -> None:
    accelerated, plain = now.scheduler.groups
    assert share_in_use(accelerated, now) == pytest.approx(8 / 16)
    assert share_in_use(plain, now) == pytest.approx(1 / 4)
    result = dict(figures(now))
    assert result["accelerators in use"] == "8 of 16"
    assert result["in use, per hour"] == "$8.25"
    assert result["all of it, per hour"] == "$17.00"
    assert [row["in_use"] for row in table_rows(GROUPS, group_rows(now))] == [0.5, 0.25]


def test_a_node_names_the_jobs_on_it(now: FleetView) -> None:
    rows = {row["node"]: row for row in node_rows(now)}
    assert rows["n1"]["jobs"] == "job-1, job-2"
    assert rows["n1"]["workers"] == 3
    assert set(rows) == {"n1", "n2", "c1"}


def test_an_empty_fleet_has_no_share(now: FleetView) -> None:
    gone = NodeGroup("gone", "T4", nodes=0, gpus=4, cpus=8, memory=1e9)
    assert share_in_use(gone, now) == 0.0
