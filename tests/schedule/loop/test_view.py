"""What a policy is shown of a round."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from job_texts import parse_jobs

from trimtab.core import Node
from trimtab.schedule import WAITING, Fleet, Job
from trimtab.schedule.job import DOUBLING
from trimtab.schedule.loop.view import JobHistory, JobRow, RoundView, features, row_of, view_of
from trimtab.store import JobRecord, JobRun, JobState, Part

FLEET = Fleet.of(
    [Node(f"a{n}", 64.0, 2.0**39, "A100", 8) for n in range(2)]
    + [Node(f"t{n}", 16.0, 2.0**36, "T4", 4) for n in range(2)],
    {"a100": 2.0, "t4": 0.5},
)
A100, T4 = 0, 1


def row(text: str, told: float | None = None, state: JobState = JobState.WAITING, **run: Any) -> JobRow:
    (job,) = parse_jobs(f"name: a\ncommand: 'true'\n{text}", "job.yaml")
    record = job.named("a", 100.0).record()
    record = replace(record, state=state, run=JobRun(**run))
    return row_of(record, job.named("a", 100.0), FLEET, {}, 200.0, told)


def view(*rows: JobRow) -> RoundView:
    return view_of(rows, FLEET, JobHistory().remaining, 200.0)


def speed(seen: RoundView, group: int, workers: int) -> float:
    shape = [(s.group, s.workers) for s in seen.cluster.shapes].index((group, workers))
    return float(seen.jobs.speed[0, shape])


def test_groups_are_those_of_the_fleet() -> None:
    assert [group.accelerator for group in FLEET.groups] == ["a100", "t4"]


def test_speeds_that_are_told_are_taken_and_others_follow_the_peak_rates() -> None:
    seen = view(row("resources: {gpus: 1..8}\nspeeds: {t4: 10}\nwork: 500"))
    assert speed(seen, T4, 1) == 10.0
    assert speed(seen, T4, 2) == pytest.approx(20 * DOUBLING)
    assert speed(seen, A100, 1) == pytest.approx(10 * 312 / 65)
    assert seen.jobs.remaining.tolist() == [500.0]


def test_work_in_units_nobody_has_timed_says_nothing_about_what_is_left() -> None:
    seen = view(row("resources: {gpus: 1}\nwork: 500"))
    assert math.isnan(seen.jobs.remaining[0])
    assert speed(seen, A100, 1) / speed(seen, T4, 1) == pytest.approx(312 / 65)


def test_a_job_that_tells_its_progress_has_its_speed_measured() -> None:
    running = {"parts": (Part("t0", 2),), "group": "4xt4", "since": 150.0, "run_id": "r"}
    seen = view(row("resources: {gpus: 2}\nwork: 500", told=100.0, state=JobState.RUNNING, **running))
    assert speed(seen, T4, 2) == pytest.approx(2.0)
    assert seen.jobs.remaining.tolist() == [400.0]
    assert seen.jobs.held[0].tolist() == [0.0, 100.0]
    assert seen.jobs.attained.tolist() == [100.0]
    assert seen.jobs.spent.tolist() == [50.0]
    chosen = seen.cluster.shapes[int(seen.previous.shape[0])]
    assert (chosen.group, chosen.workers) == (T4, 2)


def test_only_shapes_the_job_can_run_in_have_a_speed() -> None:
    seen = view(row("resources: {gpus: 3..5, accelerators: a100, cpus: 16}"))
    ways = [seen.cluster.shapes[shape] for shape in np.flatnonzero(seen.jobs.speed[0])]
    assert {(way.group, way.workers) for way in ways} == {(A100, 3), (A100, 4), (A100, 5)}


def test_stopping_a_job_that_cannot_save_costs_all_it_has_done() -> None:
    running = {"parts": (Part("t0", 1),), "group": "4xt4", "since": 100.0, "run_id": "r"}
    bare = row("resources: {gpus: 1}", state=JobState.RUNNING, **running)
    saving = row(
        "resources: {gpus: 1}\ncheckpoint: {seconds: 5, restart: 7}", state=JobState.RUNNING, **running
    )
    seen = view(bare, saving)
    assert seen.jobs.restart_seconds.tolist() == [130.0, 12.0]
    assert not seen.jobs.settling.any()


def test_a_job_on_its_way_out_has_nothing() -> None:
    stopping = {"parts": (Part("t0", 1),), "group": "4xt4", "since": 100.0, "run_id": "r"}
    seen = view(row("resources: {gpus: 1}", state=JobState.STOPPING, **stopping))
    assert seen.previous.shape.tolist() == [WAITING]


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
    found = learned.remaining([features(job()), features(job("bert"))], [90.0, 0.0])
    assert 10.0 <= found.value[0] <= 50.0
    assert found.low[0] <= found.value[0] <= found.high[0]
    assert np.isnan(found.value[1])


def test_rates_are_medians_of_those_measured() -> None:
    learned = history(ended(1.0, t4=2.0), ended(1.0, t4=4.0, a100=9.0), ended(1.0, t4=3.0))
    assert learned.rates("resnet") == {"t4": 3.0, "a100": 9.0}
    assert learned.rates("bert") == {}


def test_nodes_that_are_alike_are_a_group_under_the_catalogs_name() -> None:
    fleet = Fleet.of(
        [Node(f"a{n}", 64.0, 2.0**39, "A100", 8) for n in range(2)]
        + [Node(f"t{n}", 16.0, 2.0**36, "Tesla T4", 4) for n in range(6)]
        + [Node("c", 8.0, 2.0**35)]
    )
    assert [(g.name, g.accelerator, g.nodes) for g in fleet.groups] == [
        ("cpu", "", 1),
        ("8xa100", "a100", 2),
        ("4xt4", "t4", 6),
    ]
    assert fleet.places["t3"] == (2, 3)


def test_the_same_nodes_in_two_sizes_have_names_of_their_own() -> None:
    fleet = Fleet.of([Node("a", 1.0, 1.0), Node("b", 2.0, 1.0), Node("c", 2.0, 1.0, zone="west")])
    assert [group.name for group in fleet.groups] == ["cpu", "cpu.2", "cpu@west"]
