"""The best choices within what groups have, against trying everything, and how long that takes."""

from itertools import product
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.schedule import WAITING, Cluster, GangShape, NodeGroup
from trimtab.schedule.policies.assignment import AssignmentProblem, assign, fill

GROUPS = (NodeGroup("a", "a", 1, 4, 6.0, 1e11), NodeGroup("b", "b", 2, 2, 8.0, 5e10))
CLUSTER = Cluster(
    GROUPS, (GangShape(0, 1), GangShape(0, 2), GangShape(0, 4), GangShape(1, 1), GangShape(1, 4))
)

worths = st.lists(
    st.lists(st.sampled_from([-1.0, 0.0, 0.3, 0.5, 1.0, 1.7, 2.0, 4.0]), min_size=5, max_size=5),
    min_size=1,
    max_size=5,
)
demands = st.tuples(
    st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0]),
    st.sampled_from([0.1, 1.0, 2.5]),
    st.sampled_from([0.0, 1e10 / 3, 4e10]),
)


def _problem(value: list[list[float]], demand: list[tuple[float, float, float]]) -> AssignmentProblem:
    return AssignmentProblem.of(np.array(value), CLUSTER, np.array(demand[: len(value)]))


def _fits(problem: AssignmentProblem, shape: np.ndarray) -> bool:
    used = np.zeros_like(problem.capacity)
    for job, chosen in enumerate(shape):
        if chosen != WAITING:
            used[problem.group[chosen]] += problem.workers[chosen] * problem.demand[job]
    return bool((used <= problem.capacity * (1 + 1e-6)).all())


def _worth(problem: AssignmentProblem, shape: np.ndarray) -> float:
    return sum(problem.value[job, chosen] for job, chosen in enumerate(shape) if chosen != WAITING)


def _best_of_all(problem: AssignmentProblem) -> float:
    ways = [[WAITING, *np.flatnonzero(np.isfinite(row))] for row in problem.value]
    return max(_worth(problem, np.array(way)) for way in product(*ways) if _fits(problem, np.array(way)))


@settings(max_examples=50, deadline=None)
@given(worths, st.lists(demands, min_size=5, max_size=5))
def test_small_rounds_are_as_good_as_any(
    value: list[list[float]], demand: list[tuple[float, float, float]]
) -> None:
    problem = _problem(value, demand)
    answer = assign(problem)
    best = _best_of_all(problem)
    assert _fits(problem, answer.shape)
    assert answer.worth == pytest.approx(_worth(problem, answer.shape))
    assert answer.worth == pytest.approx(best, rel=2e-4)
    assert answer.bound >= best - 1e-6
    assert (answer.prices >= 0).all()


@settings(max_examples=50, deadline=None)
@given(
    worths, st.lists(demands, min_size=5, max_size=5), st.lists(st.integers(-1, 4), min_size=5, max_size=5)
)
def test_no_answer_is_worse_than_the_greedy_one_or_the_last(
    value: list[list[float]], demand: list[tuple[float, float, float]], last: list[int]
) -> None:
    problem = _problem(value, demand)
    before = np.array(last[: len(value)])
    impossible = [chosen != WAITING and value[job][chosen] <= 0 for job, chosen in enumerate(before)]
    before[impossible] = WAITING
    answer = assign(problem, before, seconds=0.0)
    nobody = np.full(len(value), WAITING)
    greedy = fill(problem, nobody, np.zeros_like(problem.capacity))
    assert _fits(problem, answer.shape)
    assert _fits(problem, greedy)
    assert answer.worth >= _worth(problem, greedy) - 1e-9
    if _fits(problem, before):
        assert answer.worth >= _worth(problem, before) - 1e-9
    assert answer.bound >= answer.worth - 1e-6


def test_nobody_asks_for_anything() -> None:
    answer = assign(AssignmentProblem.of(np.empty((0, 5)), CLUSTER, np.empty((0, 3))))
    assert len(answer.shape) == 0
    assert answer.worth == answer.bound == 0.0


def test_a_group_that_has_nothing_gives_nothing() -> None:
    gone = Cluster((NodeGroup("a", "a", 0, 4, 8.0, 1e9), GROUPS[1]), CLUSTER.shapes)
    problem = AssignmentProblem.of(np.ones((3, 5)), gone, np.ones((3, 3)))
    answer = assign(problem)
    assert (gone.shape_group[answer.shape] == 1).all()


def test_what_is_wanted_too_much_has_a_price_and_the_rest_is_free() -> None:
    value = np.array([[3.0, 0.0, 0.0, 1.0, 0.0]] * 6)
    answer = assign(AssignmentProblem.of(value, CLUSTER, np.tile((1.0, 0.5, 0.0), (6, 1))))
    assert np.bincount(answer.shape).tolist() == [4, 0, 0, 2]
    assert answer.worth == pytest.approx(14.0)
    assert answer.prices[0, 0] == pytest.approx(2.0, rel=0.05)
    assert answer.prices[1] == pytest.approx([0.0, 0.0, 0.0], abs=0.05)
    assert (answer.prices[:, 1:] == 0).all()


def test_a_pinned_job_keeps_what_it_has_and_others_share_the_rest() -> None:
    value = np.array([[1.0, 2.0, 3.0, 0.0, 0.0]] * 3)
    pinned = np.array([1, WAITING, WAITING])
    problem = AssignmentProblem.of(value, CLUSTER, np.tile((1.0, 1.0, 0.0), (3, 1)), pinned)
    answer = assign(problem)
    assert answer.shape[0] == WAITING
    assert answer.worth == pytest.approx(2.0)


def test_who_changes_less_is_preferred_by_loyalty() -> None:
    value = np.array([[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.02, 0.0, 0.0]])
    problem = AssignmentProblem.of(value, CLUSTER, np.ones((2, 3)))
    before = np.array([2, WAITING])
    assert assign(problem, before).shape.tolist() == [WAITING, 2]
    assert assign(problem, before, loyalty=0.1).shape.tolist() == before.tolist()


def large_round(jobs: int, seed: int = 0) -> AssignmentProblem:
    """Jobs whose speed grows less and less with workers, on 2,016 accelerators in 90 shapes."""
    draw = np.random.default_rng(seed)
    groups = tuple(NodeGroup(name, name, 84, 8, 96.0, 1e12) for name in "abc")
    sizes = (1, 2, 4, *range(8, 8 * 28, 8))
    cluster = Cluster(groups, tuple(GangShape(group, size) for group in range(3) for size in sizes))
    speed = draw.uniform(0.5, 3.0, (jobs, 3))[:, cluster.shape_group]
    value = draw.lognormal(0, 1, (jobs, 1)) * speed
    value *= cluster.shape_workers ** draw.uniform(0.3, 0.95, (jobs, 1))
    value[cluster.shape_workers > 2 ** draw.integers(0, 7, (jobs, 1))] = 0.0
    demand = (np.ones(jobs), draw.choice([1.0, 2.0, 4.0, 12.0], jobs), draw.choice([8e9, 32e9, 64e9], jobs))
    return AssignmentProblem.of(value, cluster, np.column_stack(demand))


def test_a_large_round_is_near_the_bound() -> None:
    problem = large_round(400)
    answer = assign(problem, seconds=0.3)
    assert _fits(problem, answer.shape)
    assert answer.worth >= 0.99 * answer.bound


def test_without_time_the_answer_is_always_the_same() -> None:
    problem = large_round(100, seed=3)
    first, second = (assign(problem, seconds=0.0) for _ in range(2))
    assert (first.shape == second.shape).all()
    assert (first.prices == second.prices).all()


@pytest.mark.benchmark
def test_rounds_of_a_thousand_jobs_take_less_than_a_second() -> None:
    """`pytest -m benchmark -s tests/schedule/test_assignment.py` prints it."""
    took = {}
    for jobs in (1000, 2000, 4000):
        problem = large_round(jobs)
        begun = process_time()
        answer = assign(problem, seconds=0.5)
        took[jobs] = process_time() - begun
        gap = 1 - answer.worth / answer.bound
        print(
            f"\n{jobs} jobs, {problem.value.shape[1]} shapes: {took[jobs]:.2f} s, {gap:.2%} below the bound"
        )
    assert took[1000] < 1.0
    assert took[4000] < 6 * max(took[1000], 0.1)
