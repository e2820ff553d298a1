"""Adaptive jobs in a simulator, and Sia's figures on one of its workloads."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import NotFoundError, Workload
from trimtab.schedule import Cluster, GangShape, Job, NodeGroup, read_trace, usual_shapes
from trimtab.schedule.placing import Placement
from trimtab.schedule.policies import policy
from trimtab.schedule.simulation.goodput import (
    AdaptiveTraining,
    ApplicationShapes,
    GoodputWorld,
    StepModel,
    fit,
    ways,
)
from trimtab.schedule.simulation.goodput_profiles import MeasuredApplication
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

ONE_A100 = Cluster(
    (NodeGroup("a100", "a100", 1, 8, 64.0, 1e12),),
    (GangShape(0, 1), GangShape(0, 2), GangShape(0, 4), GangShape(0, 8)),
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
    with pytest.raises(NotFoundError, match=r'"doom".*cifar10'):
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


GROUPS = (
    NodeGroup("t4", "t4", 6, 4, 32.0, 1e12),
    NodeGroup("a100", "a100", 2, 8, 64.0, 1e12),
    NodeGroup("other", "tpu", 2, 8, 64.0, 1e12),
)
CLUSTER = Cluster(GROUPS, usual_shapes(GROUPS))


def _training(profiles: dict[str, MeasuredApplication], name: str) -> AdaptiveTraining:
    return AdaptiveTraining(ApplicationShapes(profiles[name], CLUSTER))


def test_batches_are_from_the_smallest_to_the_largest_and_fit(
    profiles: dict[str, MeasuredApplication],
) -> None:
    application = profiles["bert"]
    for workers in (1.0, 3.0, 8.0, 64.0):
        found = ways(application, 4, 12, np.array([1.0]), np.array([workers]))
        chosen = found.allowed > 0
        assert chosen.any()
        batch = (workers * found.local * (found.accumulated + 1))[chosen]
        assert batch.min() >= max(application.smallest, 4 * workers)
        assert batch.max() <= application.largest + workers * (found.accumulated.max() + 1)
        assert (found.local[chosen] <= 12).all()
        assert found.scale[chosen] == pytest.approx(batch / application.smallest)
        if workers == 1:
            assert (found.accumulated[chosen & (found.local * (found.accumulated + 1) > 12)] >= 1).all()


def test_a_job_begins_with_the_smallest_batch(profiles: dict[str, MeasuredApplication]) -> None:
    training = _training(profiles, "cifar10")
    training.start("t4", (1,))
    assert (training.local, training.accumulated) == (128, 0)
    assert not training.ran
    training.start("t4", (4, 4, 4))
    assert training.local * 12 >= 384


def test_before_it_ran_only_one_worker_can_be_judged(profiles: dict[str, MeasuredApplication]) -> None:
    speed = _training(profiles, "bert").speed()
    assert ((speed > 0) == ((CLUSTER.shape_workers == 1) & (CLUSTER.shape_group < 2))).all()


def test_having_run_it_expects_something_of_every_shape_it_can_use(
    profiles: dict[str, MeasuredApplication],
) -> None:
    training = _training(profiles, "bert")
    training.start("t4", (1,))
    assert math.isinf(training.advance(60.0))
    speed = training.speed()
    assert training.ran
    assert training.tried == 1
    assert (speed[CLUSTER.shape_group < 2] > 0).all()
    assert (speed[CLUSTER.shape_group == 2] == 0).all()


def test_what_it_expects_where_it_runs_is_what_it_does(profiles: dict[str, MeasuredApplication]) -> None:
    training = _training(profiles, "cifar10")
    training.start("a100", (4,))
    training.advance(120.0)
    before = training.progress
    training.advance(10.0)
    done = (training.progress - before) / 10.0
    shape = next(n for n, shape in enumerate(CLUSTER.shapes) if (shape.group, shape.workers) == (1, 4))
    assert training.speed()[shape] == pytest.approx(done, rel=0.15)


@settings(max_examples=10, deadline=None)
@given(steps=st.lists(st.floats(1.0, 4000.0), min_size=1, max_size=20))
def test_it_ends_with_all_progress_however_time_is_cut(
    steps: list[float], profiles: dict[str, MeasuredApplication]
) -> None:
    training = _training(profiles, "bert")
    training.start("a100", (1,))
    passed, last = 0.0, 0.0
    for seconds in [*steps, 1e6]:
        ended = training.advance(seconds)
        assert training.progress >= last
        last = training.progress
        if math.isfinite(ended):
            assert 0 <= ended <= seconds
            passed += ended
            break
        passed += seconds
    assert training.progress == pytest.approx(profiles["bert"].milestones[-1])
    # At most as long as with the smallest batch all the time, and at least an eighth of that.
    assert 0.83 / 8 <= passed / 3600 <= 0.84


def test_what_was_not_saved_is_lost_and_no_more(profiles: dict[str, MeasuredApplication]) -> None:
    training = _training(profiles, "cifar10")
    training.start("t4", (1,))
    training.advance(600.0)
    reached, epoch = training.progress, training.epoch
    training.lose(300.0)
    assert 0.3 * reached < training.progress < 0.7 * reached
    assert training.epoch < epoch
    training.lose(1e9)
    assert (training.progress, training.epoch) == (0.0, 0)


TRUE = StepModel(0.1, 0.01, within=0.05, within_more=0.02, across=0.2, across_more=0.05, overlap=1.6)
SEEN = [(1, 1, 8), (1, 1, 32), (1, 2, 16), (1, 4, 16), (2, 8, 16), (2, 12, 16)]


def _shown(
    model: StepModel, ways: list[tuple[int, int, int]]
) -> dict[tuple[int, int, int], tuple[float, float]]:
    shown = {}
    for way in ways:
        computing, step = model.times(*(np.array(float(part)) for part in way))
        shown[way] = (float(step), float(step - computing))
    return shown


def _step(model: StepModel, way: tuple[int, int, int]) -> float:
    return float(model.times(*(np.array(float(part)) for part in way))[1])


def test_a_model_that_made_the_steps_is_found_again() -> None:
    found = fit(_shown(TRUE, SEEN))
    for way in SEEN:
        assert _step(found, way) == pytest.approx(_step(TRUE, way), rel=0.01)
    for way in [(1, 3, 24), (2, 10, 8)]:
        assert _step(found, way) == pytest.approx(_step(TRUE, way), rel=0.1)


def test_who_has_tried_one_worker_believes_that_more_cost_nothing() -> None:
    found = fit({(1, 1, 16): (0.4, 0.0)})
    computing, step = found.times(np.array(1.0), np.array(4.0), np.array(16.0))
    assert float(computing) == pytest.approx(0.4)
    assert float(step) == pytest.approx(0.4, rel=1e-3)


def test_nodes_apart_are_believed_slower_than_workers_in_one() -> None:
    found = fit({(1, 1, 16): (0.4, 0.0), (1, 2, 16): (0.5, 0.1)})
    within, across = (found.times(np.array(nodes), np.array(4.0), np.array(16.0))[1] for nodes in (1.0, 2.0))
    assert across > within > 0.4


some_ways = st.tuples(st.integers(1, 3), st.integers(1, 16), st.integers(1, 512)).filter(
    lambda way: way[0] <= way[1]
)
seconds = st.tuples(st.floats(1e-3, 10.0), st.floats(0.0, 0.9)).map(lambda pair: (pair[0], pair[0] * pair[1]))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(some_ways, seconds, min_size=1, max_size=6))
def test_any_model_is_positive_and_finite(seen: dict[tuple[int, int, int], tuple[float, float]]) -> None:
    found = fit(seen)
    for way in [*seen, (1, 1, 1), (4, 64, 1024)]:
        computing, step = found.times(*(np.array(float(part)) for part in way))
        assert 0 < float(computing) < np.inf
        assert float(computing) * (1 - 1e-9) <= float(step) < np.inf
