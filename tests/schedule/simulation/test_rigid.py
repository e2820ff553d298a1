"""Rigid jobs progress by the physics of adaptive ones, and Gavel's policy lands where it was published."""

from pathlib import Path

import numpy as np
import pytest

from trimtab.core import BadInputError, Workload
from trimtab.schedule import Cluster, GangShape, Job, NodeGroup, policy, read_trace
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.goodput_profiles import MeasuredApplication, read_profiles
from trimtab.schedule.simulation.rigid import Gang, RigidWorld
from trimtab.schedule.simulation.scene import scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

# Mean completion and makespan in hours, restarts per job, of Gavel on philly-1 with rigid jobs.
PUBLISHED = (1.671, 35.63, 6.42)


@pytest.fixture(scope="module")
def profiles(shared_data: Path) -> dict[str, MeasuredApplication]:
    return read_profiles(shared_data / "goodput")


def test_gavel_with_rigid_jobs_is_where_it_was_published(shared_data: Path) -> None:
    file = shared_data / "goodput" / "workloads.csv.gz"
    scene = scene_of(read_trace(file, "philly-1"), file, rigid=True)
    settings = SimulationSettings(round=scene.round)
    gavel = policy("gavel:objective=throughput")
    figures = simulate(scene.jobs, scene.cluster, scene.world(), gavel, settings).figures()
    found = tuple(figures[key] for key in ("avg_jct_h", "makespan_h", "restarts"))
    assert found == pytest.approx(PUBLISHED, rel=0.1)


def test_one_accelerator_at_the_smallest_batch_takes_the_hours_that_are_told(
    profiles: dict[str, MeasuredApplication],
) -> None:
    for name, hours in {"cifar10": 2.01, "bert": 4.54, "deepspeech2": 6.48}.items():
        application = profiles[name]
        pace = Gang(application, 1, application.smallest).pace("t4", (1,))
        assert np.allclose(pace.gains, 1.0)
        assert application.milestones[-1] / pace.steps / 3600 == pytest.approx(hours, rel=0.02)


def test_a_batch_that_does_not_fit_is_accumulated(profiles: dict[str, MeasuredApplication]) -> None:
    small, large = (Gang(profiles["bert"], 2, batch).pace("t4", (2,)) for batch in (24, 48))
    assert 1.5 < small.steps / large.steps < 2.5
    assert (large.gains > small.gains).all()


def test_what_was_not_saved_is_done_again(profiles: dict[str, MeasuredApplication]) -> None:
    groups = (NodeGroup("t4", "t4", 1, 4, 32, 256e9),)
    cluster = Cluster(groups, (GangShape(0, 1), GangShape(0, 2)))
    (job,) = _jobs("cifar10", 2)
    world = RigidWorld(profiles, [job], [256], cluster)
    world.start(0, Placement(0, ((0, 2),), (1.0, 1.0, 0.0)))
    one = np.array([0])
    assert world.advance(one, np.array([1000.0]))[0] == np.inf
    before = world.look(one)
    world.stop(0, 400.0)
    after = world.look(one)
    assert after.done[0] == pytest.approx(0.6 * before.done[0])
    assert after.remaining[0] > before.remaining[0]
    world.start(0, Placement(0, ((0, 2),), (1.0, 1.0, 0.0)))
    world.advance(one, np.array([400.0]))
    assert world.look(one).done[0] == pytest.approx(before.done[0])


def test_only_the_size_asked_for_has_a_speed(profiles: dict[str, MeasuredApplication]) -> None:
    groups = (NodeGroup("t4", "t4", 1, 4, 32, 256e9), NodeGroup("h100", "h100", 1, 4, 32, 256e9))
    cluster = Cluster(groups, tuple(GangShape(g, n) for g in (0, 1) for n in (1, 2, 4)))
    speed = RigidWorld(profiles, _jobs("bert", 2), [24], cluster).look(np.array([0])).speed[0]
    assert np.flatnonzero(speed).tolist() == [1]


def test_a_gang_that_no_measured_accelerator_holds_is_refused(
    profiles: dict[str, MeasuredApplication],
) -> None:
    groups = (NodeGroup("h100", "h100", 1, 4, 32, 256e9),)
    with pytest.raises(BadInputError, match=r"bert.* t4"):
        RigidWorld(profiles, _jobs("bert", 2), [24], Cluster(groups, (GangShape(0, 2),)))


def _jobs(application: str, workers: int) -> list[Job]:
    return [Job("a", Workload("a"), 0.0, least=workers, most=workers, application=application)]
