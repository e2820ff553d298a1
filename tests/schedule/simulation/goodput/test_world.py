"""Adaptive jobs in a simulator, and Sia's figures on one of its workloads."""

from pathlib import Path

import numpy as np
import pytest

from trimtab.core import NotFoundError, Workload
from trimtab.schedule import Cluster, Group, Job, Shape, read_trace, usual_shapes
from trimtab.schedule.placing import Placement
from trimtab.schedule.policies import policy
from trimtab.schedule.simulation.goodput import GoodputWorld
from trimtab.schedule.simulation.goodput_profiles import MeasuredApplication
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

ONE_A100 = Cluster(
    (Group("a100", "a100", 1, 8, 64.0, 1e12),), (Shape(0, 1), Shape(0, 2), Shape(0, 4), Shape(0, 8))
)
BOTH = np.arange(2)


def _on(workers: int) -> Placement:
    return Placement(0, ((0, workers),), (1.0, 1.0, 0.0))


def test_a_job_may_at_most_double_what_it_has_tried(profiles: dict[str, MeasuredApplication]) -> None:
    world = GoodputWorld(profiles, ["bert"], ONE_A100)
    rows = BOTH[:1]
    assert world.look(rows).most.tolist() == [1]
    for workers, most in ((1, 2), (2, 4), (4, 8), (1, 8)):
        world.start(0, _on(workers))
        world.advance(rows, np.array([30.0]))
        assert world.look(rows).most.tolist() == [most]


def test_what_is_left_is_known_when_one_of_its_kind_has_ended(
    profiles: dict[str, MeasuredApplication],
) -> None:
    world = GoodputWorld(profiles, ["bert", "bert"], ONE_A100)
    assert np.isnan(world.look(BOTH).remaining).all()
    world.start(0, _on(1))
    assert np.isfinite(world.advance(BOTH[:1], np.array([1e6]))).all()
    assert world.look(BOTH).remaining[1] == pytest.approx(profiles["bert"].milestones[-1])


def test_the_first_start_and_every_other_form_cost_a_restart(
    profiles: dict[str, MeasuredApplication],
) -> None:
    job = Job("a", Workload("a"), 0.0, most=1)
    world = GoodputWorld(profiles, ["bert"], ONE_A100)
    alone = simulate([job], ONE_A100, world, policy("fifo"))
    training = GoodputWorld(profiles, ["bert"], ONE_A100)
    training.start(0, _on(1))
    # With rounds of a minute, in which it may choose another batch, after 120 s of restart.
    rounds, ended = 0, np.inf
    while not np.isfinite(ended):
        ended = float(training.advance(BOTH[:1], np.array([60.0]))[0])
        rounds += 1
    assert alone.ended[0] == pytest.approx(120.0 + 60.0 * (rounds - 1) + ended)


def test_an_application_nobody_measured_is_told(profiles: dict[str, MeasuredApplication]) -> None:
    with pytest.raises(NotFoundError, match='no profile of "doom"; there are cifar10'):
        GoodputWorld(profiles, ["bert", "doom"], ONE_A100)


@pytest.mark.slow
def test_sias_policy_lands_where_sia_has_it(
    shared_data: Path, profiles: dict[str, MeasuredApplication]
) -> None:
    trace = read_trace(shared_data / "goodput" / "workloads.csv.gz", "saturn-1").elastic(64)
    cluster = Cluster(trace.groups, usual_shapes(trace.groups))
    world = GoodputWorld(profiles, [job.application for job in trace.jobs], cluster)
    figures = simulate(trace.jobs, cluster, world, policy("sia"), SimulationSettings(round=60.0)).figures()
    assert figures["avg_jct_h"] == pytest.approx(0.581, rel=0.1)
    assert figures["p99_jct_h"] == pytest.approx(7.82, rel=0.2)
    assert figures["makespan_h"] == pytest.approx(12.65, rel=0.1)
    assert figures["restarts"] == pytest.approx(4.15, rel=0.15)
