"""Figures of a replay."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from trimtab.core import Workload
from trimtab.schedule import Cluster, GangShape, Job, JobData, Market, NodeGroup, policy, read_trace
from trimtab.schedule.simulation.replay import Replay, summary, tenant_summaries
from trimtab.schedule.simulation.scene import scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate
from trimtab.schedule.simulation.tabular import TabularWorld

RENTED = NodeGroup("rented", "a", 1, 2, 8.0, 1.0, price=2.0, zone="here")
OURS = NodeGroup("ours", "b", 1, 4, 8.0, 1.0, price=8.0, market=Market.RESERVED)


def _replay(jobs: Sequence[Job], work: Sequence[float], group: NodeGroup) -> Replay:
    cluster = Cluster((group,), (GangShape(0, 1), GangShape(0, 2)))
    rates = {"any": np.array([1.0, 2.0])}
    world = TabularWorld(jobs, cluster, ["any"] * len(jobs), rates, np.array(work))
    return simulate(jobs, cluster, world, policy("fifo"))


def _job(id: str, submitted: float = 0.0, deadline: float | None = None, data: JobData | None = None) -> Job:
    return Job(id, Workload(id, deadline=deadline), submitted, data=data)


def test_figures_are_in_hours_and_from_the_first_submission() -> None:
    done = _replay([_job("a", 1e6), _job("b", 1e6)], [3600.0, 7200.0], RENTED)
    figures = done.figures()
    late = done.started[0] - 1e6
    assert 0 <= late < 60.0
    assert figures["avg_jct_h"] == pytest.approx(1.5 + late / 3600)
    assert figures["p99_jct_h"] == pytest.approx(1.99 + late / 3600)
    assert figures["makespan_h"] == pytest.approx(2.0 + late / 3600)
    assert figures["gpu_h_per_job"] == pytest.approx(1.5)
    assert figures["utilization"] == pytest.approx(3 / (2 * figures["makespan_h"]))
    assert figures["restarts"] == 0.0


def test_rented_nodes_cost_while_they_are_used_and_data_that_crosses() -> None:
    done = _replay([_job("a", data=JobData("there", 1e9))], [99.2], RENTED)
    # 99.2 s of work and 0.8 s of fetching on one of two accelerators at $2 per second, and $0.02 of egress.
    assert done.cost == pytest.approx(100.0 + 0.02)
    assert done.cost == pytest.approx(float(done.spent.sum()))


def test_reserved_nodes_cost_whether_used_or_not() -> None:
    assert _replay([_job("a")], [100.0], OURS).cost == pytest.approx(8.0 * 100.0)


def test_deadlines_count_for_those_who_have_one() -> None:
    jobs = [_job("a", deadline=100.0), _job("b", deadline=50.0), _job("c")]
    assert _replay(jobs, [100.0, 100.0, 100.0], OURS).deadlines_met == pytest.approx(0.5)
    assert _replay([_job("a")], [1.0], OURS).deadlines_met == 1.0


def test_figures_without_jobs_are_still_figures() -> None:
    figures = _replay([], [], RENTED).figures()
    assert np.isnan(figures["avg_jct_h"])
    assert figures["cost"] == figures["makespan_h"] == figures["restarts"] == 0.0
    assert json.dumps(figures)


ONE = (NodeGroup("t4", "t4", 1, 1, 8, 64e9, price=0.01),)


def test_tenants_are_served_by_the_part_of_their_jobs_lives_in_which_they_ran(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job,submit_s,tenant,duration_s\na,0,first,60\nb,0,second,180\n")
    scene = scene_of(read_trace(path), path, ONE)
    replay = simulate(scene.jobs, scene.cluster, scene.world(), policy("fifo"), SimulationSettings(60.0))
    first, second = tenant_summaries(replay)
    assert (first.served, first.completion, first.spent) == (1.0, 60.0, pytest.approx(0.6))
    assert (second.served, second.completion, second.attained) == (0.75, 240.0, 180.0)
    figures = summary(replay)
    assert figures["jain"] == pytest.approx(1.75**2 / (2 * (1 + 0.75**2)))
    assert (figures["ended"], figures["refused"], figures["deadlines"]) == (2.0, 0.0, 0.0)
    assert figures["cost"] == pytest.approx(2.4)


def test_who_is_refused_neither_waits_nor_is_served(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job,submit_s,duration_s,deadline_s,hard\na,0,60,600,true\nb,0,600,300,true\n")
    scene = scene_of(read_trace(path), path, ONE)
    replay = simulate(scene.jobs, scene.cluster, scene.world(), policy("edf"), SimulationSettings(60.0))
    figures = summary(replay)
    assert (figures["refused"], figures["deadlines"], figures["deadlines_met"]) == (1.0, 2.0, 0.5)
    assert replay.waited.tolist() == [0.0, 0.0]
    assert replay.why[1]
