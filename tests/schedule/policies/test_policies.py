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
    GangShape,
    JobColumns,
    NodeGroup,
    Quotas,
    WithQuotas,
    usual_shapes,
)
from trimtab.schedule.policies import POLICIES, policy
from trimtab.schedule.policies.filling import NO_GROUP_HOLDS_IT
from trimtab.store import Tenant

RoundOf = Callable[..., JobColumns]
CLASSIC = [
    *(name for name in POLICIES if name != "sia"),
    "fifo:backfill=false",
    "maxmin:over=tenants",
    "gavel:objective=throughput,one_queue=true",
    "gavel:objective=fifo",
    "trimtab:thrift=100",
]

groups = st.builds(
    lambda name, nodes, gpus, cpus, memory: NodeGroup(name, name, nodes, gpus, cpus, memory),
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
    cluster = Cluster(there, (*usual_shapes(parts), GangShape(0, 3)))
    jobs = draw(st.lists(a_job(), min_size=0, max_size=12))
    return cluster, [{**job, "id": f"j{n}", "submitted": float(n)} for n, job in enumerate(jobs)]


def used(jobs: JobColumns, cluster: Cluster, shape: np.ndarray) -> np.ndarray:
    total = np.zeros_like(cluster.capacity)
    rows = np.flatnonzero(shape != WAITING)
    taken = cluster.shape_workers[shape[rows], None] * jobs.demand[rows]
    np.add.at(total, cluster.shape_group[shape[rows]], taken)
    return total


def three_rounds(name: str, jobs: JobColumns, cluster: Cluster) -> list[Allocation]:
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
    parts = (NodeGroup("a100", "a100", 2, 4, 64.0, 1e12),)
    cluster = Cluster(parts, usual_shapes(parts))
    jobs = round_of(cluster, [{"submitted": float(n), "remaining": 100.0} for n in range(12)])
    for answer in three_rounds(name, jobs, cluster):
        assert (answer.shape != WAITING).sum() == 8


@pytest.mark.parametrize("name", CLASSIC)
def test_a_node_that_is_gone_is_not_given_away(name: str, round_of: RoundOf) -> None:
    before = (NodeGroup("a100", "a100", 3, 4, 64.0, 1e12),)
    shapes = usual_shapes(before)
    after = Cluster((NodeGroup("a100", "a100", 1, 4, 64.0, 1e12),), shapes)
    jobs = round_of(after, [{"least": 4, "submitted": float(n), "remaining": 9.0} for n in range(3)])
    previous = Allocation(np.full(3, shapes.index(GangShape(0, 4))), np.arange(3))
    answer = policy(name).allocate(jobs, after, previous, SimulatedClock())
    assert (answer.shape != WAITING).sum() == 1


@pytest.mark.parametrize("name", CLASSIC)
def test_groups_may_come_and_go(name: str, round_of: RoundOf) -> None:
    old, new = NodeGroup("old", "t4", 1, 4, 64.0, 1e12), NodeGroup("new", "a100", 1, 8, 64.0, 1e12)
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
    for parts in ((), (NodeGroup("gone", "t4", 0, 4, 64.0, 1e12),)):
        cluster = Cluster(parts, ())
        jobs = round_of(cluster, [{"hard": True, "deadline": 9.0, "remaining": 1.0}, {}])
        answer = chosen.allocate(jobs, cluster, Allocation.nothing(2), SimulatedClock())
        assert answer.shape.tolist() == [WAITING, WAITING]
        assert answer.why[1] == NO_GROUP_HOLDS_IT


def test_every_policy_can_be_made_and_says_what_it_does() -> None:
    for name in POLICIES:
        assert callable(policy(name).allocate)
        assert type(policy(name)).__doc__


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("prioritee", ['"prioritee"', "did you mean priority?"]),
        ("quantum", ['"quantum"', "trimtab, fifo"]),
        ("fifo:backfil=true", ["policy fifo", "did you mean backfill?"]),
        ("fifo:backfill", ["policy fifo", '"backfill"']),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(name: str, parts: list[str]) -> None:
    with pytest.raises(NotFoundError) as error:
        policy(name)
    assert all(part in str(error.value) for part in parts)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fifo:backfill=maybe", ["policy fifo", "backfill", '"maybe"']),
        ("fifo:depth=few", ["policy fifo", "depth", '"few"']),
        ("las:thresholds=a/b", ["policy las", "thresholds", '"a/b"']),
        ("maxmin:over=planets", ["policy maxmin", "over", "tenants", '"planets"']),
        ("gavel:objective=joy", ["policy gavel", "objective", "throughput", '"joy"']),
    ],
)
def test_wrong_settings_are_refused_by_name_and_value(name: str, parts: list[str]) -> None:
    with pytest.raises(BadInputError) as error:
        policy(name)
    assert all(part in str(error.value) for part in parts)


@pytest.mark.parametrize("name", POLICIES)
def test_a_running_job_that_is_not_preemptible_keeps_its_shape(name: str, round_of: RoundOf) -> None:
    """An urgent job with an early deadline and little work gets the other accelerator only."""
    groups = (NodeGroup("a100", "a100", 1, 2, 8.0, 1e12),)
    cluster = Cluster(groups, usual_shapes(groups))
    rows: list[dict[str, Any]] = [
        {"id": "kept", "most": 2, "remaining": 1e6, "attained": 1e5, "preemptible": False},
        {"id": "new", "priority": 20.0, "deadline": 200.0, "remaining": 10.0, "least": 2},
        {"id": "small", "priority": 20.0, "deadline": 200.0, "remaining": 10.0},
    ]
    previous = Allocation(np.array([0, WAITING, WAITING]), np.arange(3))
    answer = policy(name).allocate(round_of(cluster, rows), cluster, previous, SimulatedClock())
    assert answer.shape.tolist() == [0, WAITING, 0]
