"""What jobs have left, from those that ended: the rule, the model, and who may answer."""

import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.predict import Durations, JobFeatures

BERT = JobFeatures("bert", "ads")
WORK = st.floats(1e-3, 1e12)


def taught(works: list[float], features: JobFeatures = BERT) -> Durations:
    durations = Durations()
    for work in works:
        durations.ended(features, work)
    return durations


def two_tenants(seed: int = 0, jobs: int = 150) -> Durations:
    """One tenant's jobs take a hundred times as long as the other's."""
    random = np.random.default_rng(seed)
    durations = Durations()
    for work in random.lognormal(0.0, 0.3, jobs):
        durations.ended(JobFeatures("x", "short"), 100.0 * work)
        durations.ended(JobFeatures("x", "long"), 10_000.0 * work)
    return durations


def test_nothing_is_said_of_an_application_nobody_has_seen_end() -> None:
    durations = taught([5.0])
    assert durations.left(JobFeatures("other"), 0.0) is None
    assert np.isnan(durations.left_many([JobFeatures("other")], [0.0]).value).all()


def test_jobs_that_are_all_alike_are_known_exactly() -> None:
    left = taught([39_063.0] * 30).left(BERT, 39_000.0)
    assert left is not None
    assert (left.value, left.low, left.high) == pytest.approx((63.0, 63.0, 63.0))


def test_the_rule_is_the_middle_of_those_that_had_more_to_do() -> None:
    answer = taught([1.0, 2.0, 10.0, 20.0, 30.0]).guarded(BERT, 5.0)
    assert answer is not None
    assert answer.rule.value == 20.0 - 5.0
    assert answer.chosen_by == "rule"
    assert "only 4 jobs" in answer.reason


def test_a_tenant_is_judged_by_its_own_jobs() -> None:
    durations = two_tenants()
    short = durations.guarded(JobFeatures("x", "short"), 0.0)
    long = durations.guarded(JobFeatures("x", "long"), 0.0)
    assert short is not None
    assert long is not None
    assert short.chosen_by == long.chosen_by == "model"
    assert 60 < short.estimate.value < 160
    assert 6_000 < long.estimate.value < 16_000
    assert "factor" in short.reason


def test_the_guard_answers_with_the_rule_where_the_job_is_unlike_those_that_ended() -> None:
    durations = two_tenants()
    stranger = durations.guarded(JobFeatures("x", "new"), 0.0)
    giant = durations.guarded(JobFeatures("x", "short", gpus=512.0), 0.0)
    assert stranger is not None
    assert giant is not None
    assert stranger.chosen_by == "rule"
    assert "tenant" in stranger.reason
    assert (giant.chosen_by, giant.reason) == (
        "rule",
        "jobs that ended had 1 to 1 accelerators, this one has 512",
    )
    assert stranger.estimate.value == stranger.rule.value


def test_the_guard_answers_with_the_rule_where_that_has_done_better() -> None:
    random = np.random.default_rng(1)
    durations = Durations()
    for number, work in enumerate(random.lognormal(5.0, 1.0, 600)):
        durations.ended(JobFeatures("x", f"tenant-{number % 150}"), float(work))
    answer = durations.guarded(JobFeatures("x", "tenant-3"), 0.0)
    assert answer is not None
    assert answer.chosen_by == "rule"
    assert "the rule by" in answer.reason


def test_a_job_that_outlasts_all_others_has_as_much_again_unless_they_were_alike() -> None:
    varied = taught([1.0, 10.0, 100.0, 1000.0]).left(BERT, 5000.0)
    alike = taught([100.0, 101.0, 99.0]).left(BERT, 105.0)
    assert varied is not None
    assert alike is not None
    assert varied.value == pytest.approx(5000.0)
    assert 0 < alike.value < 3.0


def test_ranges_hold_what_they_promise_where_the_world_does_not_change() -> None:
    random = np.random.default_rng(5)
    durations, held, early = Durations(), [], []
    for work in random.lognormal(8.0, 1.5, 900).tolist():
        if len(held) > 100:
            for done, kept in ((0.0, held), (1000.0, early)):
                left = durations.left(BERT, done)
                assert left is not None
                if work > done:
                    kept.append(left.contains(work - done))
        else:
            held.append(True)
        durations.ended(BERT, work)
    assert np.mean(held[100:]) == pytest.approx(0.9, abs=0.05)
    assert np.mean(early) == pytest.approx(0.9, abs=0.05)


def test_what_cannot_be_work_is_passed_over() -> None:
    durations = taught([0.0, -1.0, float("nan"), float("inf")])
    assert durations.left(BERT, 0.0) is None


def test_many_jobs_are_answered_as_one_by_one() -> None:
    durations = two_tenants()
    features = [
        JobFeatures("x", "short"),
        JobFeatures("y"),
        JobFeatures("x", "long"),
        JobFeatures("x", "new"),
    ]
    done = [50.0, 0.0, 9e5, 3.0]
    many = durations.left_many(features, done)
    for row, (item, at) in enumerate(zip(features, done, strict=True)):
        one = durations.guarded(item, at)
        if one is None:
            assert np.isnan(many.value[row])
            continue
        assert many.value[row] == pytest.approx(one.estimate.value)
        assert (many.low[row], many.high[row]) == pytest.approx((one.estimate.low, one.estimate.high))
        assert many.by_model[row] == (one.chosen_by == "model")


def test_nobody_is_answered_with_nothing() -> None:
    assert len(two_tenants(jobs=30).left_many([], []).value) == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(WORK, min_size=1, max_size=60), st.floats(0, 1e13))
def test_any_history_gives_a_sound_estimate(works: list[float], done: float) -> None:
    left = taught(works).left(BERT, done)
    assert left is not None
    assert 0.0 <= left.low <= left.value <= left.high < np.inf


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), WORK), min_size=1, max_size=40))
def test_the_same_history_gives_the_same_answer_however_often_it_was_asked(
    history: list[tuple[str, int, float]],
) -> None:
    answers = []
    for request in (False, True):
        durations = Durations()
        for tenant, gpus, work in history:
            durations.ended(JobFeatures("x", tenant, gpus), work)
            if request:
                durations.left(JobFeatures("x", "a", 1), 0.5)
        answers.append(durations.left(JobFeatures("x", "a", 1), 0.5))
    assert answers[0] == answers[1]


def test_two_thousand_jobs_take_milliseconds() -> None:
    random = np.random.default_rng(0)
    kinds = [JobFeatures(f"a{i % 10}", f"t{i % 6}", 2.0 ** (i % 2)) for i in range(60)]
    durations = Durations()
    for number, work in enumerate(random.lognormal(8.0, 1.0, 1500).tolist()):
        durations.ended(kinds[number % len(kinds)], work)
    features = [kinds[i] for i in random.integers(0, len(kinds), 2000)]
    done = random.uniform(0, 5000, 2000)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        durations.left_many(features, done)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05  # about 0.004 on an idle core
