"""Figures by tenant, and how even what they got is."""

from pathlib import Path

import pytest

from trimtab.schedule import Group, policy, read_trace
from trimtab.schedule.simulation.replay import summary, tenant_summaries
from trimtab.schedule.simulation.scene import scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

ONE = (Group("t4", "t4", 1, 1, 8, 64e9, price=0.01),)


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
