"""One job that adapts its batch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.schedule import Cluster, Group, usual_shapes
from trimtab.schedule.simulation.goodput import AdaptiveTraining, ApplicationShapes, ways
from trimtab.schedule.simulation.goodput_profiles import MeasuredApplication

GROUPS = (
    Group("t4", "t4", 6, 4, 32.0, 1e12),
    Group("a100", "a100", 2, 8, 64.0, 1e12),
    Group("other", "tpu", 2, 8, 64.0, 1e12),
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
