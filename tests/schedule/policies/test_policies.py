"""Laws that hold for every policy, and how policies are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, NotFoundError, SimulatedClock
from trimtab.schedule import (
    WAITING,
    Allocation,
    Cluster,
    Group,
    Jobs,
    Quotas,
    Shape,
    WithQuotas,
    usual_shapes,
)
from trimtab.schedule.policies import POLICIES, policy
from trimtab.store import Tenant

RoundOf = Callable[..., Jobs]
CLASSIC = [
    "fifo",
    "fifo:backfill=false",
    "srtf",
    "priority",
    "edf",
    "las",
    "drf",
    "maxmin",
    "maxmin:over=tenants",
    "gavel",
    "gavel:objective=throughput,one_queue=true",
    "gavel:objective=fifo",
    "trimtab",
    "trimtab:thrift=100",
]

groups = st.builds(
    lambda name, nodes, gpus, cpus, memory: Group(name, name, nodes, gpus, cpus, memory),
    st.sampled_from(["a100", "t4"]),
    st.integers(1, 3),
    st.sampled_from([0, 1, 4, 8]),
    st.sampled_from([4.0, 16.0]),
    st.sampled_from([10.0, 64.0]),
)


@st.composite
def a_job(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(1, 6))
    unknown = st.just(float("nan"))
    return {
        "least": least,
        "most": least * draw(st.sampled_from([1, 1, 2, 4])),
        "gpus": draw(st.sampled_from([0.0, 0.25, 1.0, 1.0, 2.0])),
        "cpus": draw(st.sampled_from([0.0, 1.0, 3.0])),
        "memory": draw(st.sampled_from([0.0, 2.0, 9.0])),
        "tenant": draw(st.sampled_from("xyz")),
        "priority": draw(st.sampled_from([-10.0, 0.0, 20.0])),
        "deadline": draw(st.sampled_from([float("inf"), 50.0, 5000.0])),
        "hard": draw(st.booleans()),
        "remaining": draw(st.floats(1.0, 1e4) | unknown),
        "attained": draw(st.sampled_from([0.0, 10.0, 1e4])),
        "restart_seconds": draw(st.sampled_from([0.0, 30.0])),
        "speed": draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, float("nan")]), min_size=3, max_size=3)),
    }


@st.composite
def a_round(draw: st.DrawFn) -> tuple[Cluster, list[dict[str, Any]]]:
    parts = tuple(draw(st.lists(groups, min_size=3, max_size=3)))
    there = tuple(replace(group, nodes=draw(st.integers(0, group.nodes))) for group in parts)
    cluster = Cluster(there, (*usual_shapes(parts), Shape(0, 3)))
    jobs = draw(st.lists(a_job(), min_size=0, max_size=12))
    return cluster, [{**job, "id": f"j{n}", "submitted": float(n)} for n, job in enumerate(jobs)]


def used(jobs: Jobs, cluster: Cluster, shape: np.ndarray) -> np.ndarray:
    total = np.zeros_like(cluster.capacity)
    rows = np.flatnonzero(shape != WAITING)
    taken = cluster.shape_workers[shape[rows], None] * jobs.demand[rows]
    np.add.at(total, cluster.shape_group[shape[rows]], taken)
    return total


def three_rounds(name: str, jobs: Jobs, cluster: Cluster) -> list[Allocation]:
    chosen, clock, given = policy(name), SimulatedClock(), [Allocation.nothing(len(jobs))]
    for _ in range(3):
        given.append(chosen.allocate(jobs, cluster, given[-1], clock))
        clock.advance(2000.0)
    return given[1:]


@pytest.mark.parametrize("name", CLASSIC)
@given(world=a_round())
@settings(max_examples=25, deadline=None)
def test_capacity_gangs_and_speeds_are_respected(name: str, round_of: RoundOf, world: Any) -> None:
    cluster, rows = world
    jobs = round_of(cluster, rows)
    for answer in three_rounds(name, jobs, cluster):
        assert sorted(answer.order.tolist()) == list(range(len(jobs)))
        assert (used(jobs, cluster, answer.shape) <= cluster.capacity * (1 + 1e-8)).all()
        runs = np.flatnonzero(answer.shape != WAITING)
        workers = cluster.shape_workers[answer.shape[runs]]
        assert ((workers >= jobs.least[runs]) & (workers <= jobs.most[runs])).all()
        assert (jobs.speed[runs, answer.shape[runs]] != 0).all()
        assert not set(answer.refused) & set(runs.tolist())
        assert all(answer.why[row] for row in np.flatnonzero(answer.shape == WAITING))


@pytest.mark.parametrize("name", CLASSIC)
@given(world=a_round())
@settings(max_examples=8, deadline=None)
def test_a_policy_is_deterministic(name: str, round_of: RoundOf, world: Any) -> None:
    cluster, rows = world
    jobs = round_of(cluster, rows)
    once, again = three_rounds(name, jobs, cluster), three_rounds(name, jobs, cluster)
    assert [a.shape.tolist() for a in once] == [b.shape.tolist() for b in again]
    assert [a.refused for a in once] == [b.refused for b in again]


@pytest.mark.parametrize("name", [name for name in CLASSIC if not name.startswith("gavel:objective=f")])
def test_nothing_is_left_idle_that_somebody_could_use(name: str, round_of: RoundOf) -> None:
    parts = (Group("a100", "a100", 2, 4, 64.0, 1e12),)
    cluster = Cluster(parts, usual_shapes(parts))
    jobs = round_of(cluster, [{"submitted": float(n), "remaining": 100.0} for n in range(12)])
    for answer in three_rounds(name, jobs, cluster):
        assert (answer.shape != WAITING).sum() == 8


@pytest.mark.parametrize("name", CLASSIC)
def test_a_node_that_is_gone_is_not_given_away(name: str, round_of: RoundOf) -> None:
    before = (Group("a100", "a100", 3, 4, 64.0, 1e12),)
    shapes = usual_shapes(before)
    after = Cluster((Group("a100", "a100", 1, 4, 64.0, 1e12),), shapes)
    jobs = round_of(after, [{"least": 4, "submitted": float(n), "remaining": 9.0} for n in range(3)])
    previous = Allocation(np.full(3, shapes.index(Shape(0, 4))), np.arange(3))
    answer = policy(name).allocate(jobs, after, previous, SimulatedClock())
    assert (answer.shape != WAITING).sum() == 1


@pytest.mark.parametrize("name", CLASSIC)
def test_groups_may_come_and_go(name: str, round_of: RoundOf) -> None:
    old, new = Group("old", "t4", 1, 4, 64.0, 1e12), Group("new", "a100", 1, 8, 64.0, 1e12)
    chosen, clock = policy(name), SimulatedClock()
    for parts, held in (((old,), 4), ((old, new), 12), ((replace(old, nodes=0), new), 8), ((new,), 8)):
        cluster = Cluster(parts, usual_shapes(parts))
        jobs = round_of(cluster, [{"submitted": float(n), "remaining": 100.0} for n in range(20)])
        answer = chosen.allocate(jobs, cluster, Allocation.nothing(20), clock)
        assert (answer.shape != WAITING).sum() == held
        clock.advance(2000.0)


@pytest.mark.parametrize("name", CLASSIC)
def test_without_machines_everybody_waits(name: str, round_of: RoundOf) -> None:
    chosen = WithQuotas(policy(name), Quotas([Tenant("us", guarantee=4.0)]))
    for parts in ((), (Group("gone", "t4", 0, 4, 64.0, 1e12),)):
        cluster = Cluster(parts, ())
        jobs = round_of(cluster, [{"hard": True, "deadline": 9.0, "remaining": 1.0}, {}])
        answer = chosen.allocate(jobs, cluster, Allocation.nothing(2), SimulatedClock())
        assert answer.shape.tolist() == [WAITING, WAITING]
        assert "nothing in this cluster can hold it" in answer.why[1]


def test_every_policy_can_be_made_and_says_what_it_does() -> None:
    for name, (_, _, summary) in POLICIES.items():
        assert callable(policy(name).allocate)
        assert summary


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fiffo", 'no policy is called "fiffo" (did you mean fifo?)'),
        ("quantum", 'no policy is called "quantum"; there are trimtab,'),
        ("fifo:backfil=true", "(did you mean backfill?), written key=value"),
        ("fifo:backfill", 'policy fifo has no setting "backfill"'),
    ],
)
def test_unknown_names_are_told(name: str, sentence: str) -> None:
    with pytest.raises(NotFoundError) as error:
        policy(name)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fifo:backfill=maybe", 'policy fifo: backfill is true or false, not "maybe"'),
        ("fifo:depth=few", 'policy fifo: depth is a whole number, not "few"'),
        ("las:thresholds=a/b", 'policy las: thresholds is numbers such as 10/20, not "a/b"'),
        ("maxmin:over=planets", 'policy maxmin: over is jobs or tenants, not "planets"'),
        ("gavel:objective=joy", 'policy gavel: objective is maxmin, throughput, fifo, not "joy"'),
    ],
)
def test_wrong_settings_are_told(name: str, sentence: str) -> None:
    with pytest.raises(BadInputError) as error:
        policy(name)
    assert str(error.value) == sentence
