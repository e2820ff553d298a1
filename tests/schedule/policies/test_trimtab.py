"""Trimtab's own policy: what its one objective weighs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trimtab.core import SimulatedClock, Workload
from trimtab.schedule import (
    WAITING,
    Allocation,
    Cluster,
    GangShape,
    Job,
    JobColumns,
    Market,
    NodeGroup,
    Worker,
    usual_shapes,
)
from trimtab.schedule.policies import policy
from trimtab.schedule.simulation.simulator import simulate
from trimtab.schedule.simulation.tabular import TabularWorld

RoundOf = Callable[..., JobColumns]
HOUR = 3600.0
FOUR = Cluster((NodeGroup("t4", "t4", 1, 4, 64.0, 1e12),), tuple(GangShape(0, n) for n in (1, 2, 4)))
MIXED_GROUPS = (NodeGroup("t4", "t4", 2, 4, 64.0, 1e12), NodeGroup("a100", "a100", 1, 4, 64.0, 1e12))
MIXED = Cluster(MIXED_GROUPS, usual_shapes(MIXED_GROUPS))


def ask(
    jobs: JobColumns, cluster: Cluster, name: str = "trimtab", had: list[int] | None = None, now: float = 0.0
) -> Allocation:
    previous = Allocation.nothing(len(jobs))
    if had is not None:
        previous = replace(previous, shape=np.array(had))
    return policy(name).allocate(jobs, cluster, previous, SimulatedClock(now))


def gang(**more: Any) -> dict[str, Any]:
    """A job that takes all four, so that one of several runs."""
    return {"least": 4, "remaining": 4 * HOUR, "remaining_high": 4 * HOUR, **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"remaining": 400.0}, {"remaining": 40_000.0}),
        ({"priority": 10.0}, {"priority": 0.0}),
        ({"deadline": 1.2 * HOUR}, {}),
        ({"deadline": 1.2 * HOUR, "hard": True}, {"deadline": 1.2 * HOUR}),
        ({"submitted": -20 * HOUR}, {"submitted": 0.0}),
    ],
    ids=["shorter", "higher", "due soon", "must", "older"],
)
def test_who_runs_of_two(round_of: RoundOf, one: dict[str, Any], other: dict[str, Any]) -> None:
    for first, rows in ((0, (gang(**one), gang(**other))), (1, (gang(**other), gang(**one)))):
        answer = ask(round_of(FOUR, rows), FOUR)
        assert answer.shape[first] == 2
        assert answer.shape[1 - first] == WAITING
        assert all("4 workers on t4" in answer.why[row] and " s " in answer.why[row] for row in (0, 1))


def test_alone_a_job_gets_all_it_can_use_and_in_company_they_share(round_of: RoundOf) -> None:
    row = {"least": 1, "most": 4, "remaining": 4 * HOUR, "remaining_high": 4 * HOUR}
    assert ask(round_of(FOUR, [row]), FOUR).shape.tolist() == [2]
    jobs = replace(round_of(FOUR, [row] * 4), speed=np.tile([1.0, 1.6, 2.2], (4, 1)))
    assert ask(jobs, FOUR).shape.tolist() == [0, 0, 0, 0]


def test_jobs_go_where_they_gain_most(round_of: RoundOf) -> None:
    """Both are faster on the a100, but one of them much more so."""
    rows = [
        {"least": 4, "remaining": HOUR, "remaining_high": HOUR, "speed": [1.0, 1.2]},
        {"least": 4, "remaining": HOUR, "remaining_high": HOUR, "speed": [1.0, 5.0]},
    ]
    groups = MIXED.shape_group[ask(round_of(MIXED, rows), MIXED).shape]
    assert [MIXED.groups[g].name for g in groups] == ["t4", "a100"]


def test_who_is_restarting_is_left_alone(round_of: RoundOf) -> None:
    rows = [gang(settling=True, remaining=1e6, restart_seconds=60.0), gang(remaining=10.0, priority=20.0)]
    assert ask(round_of(FOUR, rows), FOUR, had=[2, WAITING]).shape.tolist() == [2, WAITING]
    assert (
        ask(round_of(FOUR, [{**rows[0], "settling": False}, rows[1]]), FOUR, had=[2, WAITING]).shape[1] == 2
    )


def test_a_restart_that_costs_more_than_it_gains_is_not_worth_it(round_of: RoundOf) -> None:
    row = {"least": 1, "most": 4, "remaining": 100.0, "remaining_high": 100.0}
    assert ask(round_of(FOUR, [{**row, "restart_seconds": 1.0}]), FOUR, had=[0]).shape.tolist() == [2]
    assert ask(round_of(FOUR, [{**row, "restart_seconds": 500.0}]), FOUR, had=[0]).shape.tolist() == [0]


def test_data_that_is_far_counts_like_a_restart(round_of: RoundOf) -> None:
    jobs = round_of(MIXED, [{"least": 4, "remaining": HOUR, "remaining_high": HOUR, "speed": [1.0, 1.1]}])
    far = replace(jobs, fetch=np.array([[0.0, 2 * HOUR]]))
    for each, name in ((jobs, "a100"), (far, "t4")):
        assert MIXED.groups[MIXED.shape_group[ask(each, MIXED).shape[0]]].name == name


def test_thrift_takes_the_cheap_ones_unless_a_deadline_is_close(round_of: RoundOf) -> None:
    parts = (
        NodeGroup("cheap", "t4", 1, 4, 64.0, 1e12, price=1 / HOUR),
        NodeGroup("dear", "a100", 1, 4, 64.0, 1e12, price=40 / HOUR),
    )
    cluster = Cluster(parts, (GangShape(0, 4), GangShape(1, 4)))
    row = {"least": 4, "remaining": 4 * HOUR, "remaining_high": 4 * HOUR, "speed": [1.0, 3.0]}
    assert ask(round_of(cluster, [row]), cluster).shape.tolist() == [1]
    assert ask(round_of(cluster, [row]), cluster, "trimtab:thrift=600").shape.tolist() == [0]
    close = round_of(cluster, [{**row, "deadline": 0.4 * HOUR, "hard": True}])
    assert ask(close, cluster, "trimtab:thrift=600").shape.tolist() == [1]


def test_spot_is_left_while_a_deadline_can_still_be_met(round_of: RoundOf) -> None:
    parts = (
        NodeGroup("spot", "t4", 1, 4, 64.0, 1e12, price=1 / HOUR, market=Market.SPOT, reclaims=0.1 / HOUR),
        NodeGroup("own", "t4", 1, 4, 64.0, 1e12, price=3 / HOUR),
    )
    cluster = Cluster(parts, (GangShape(0, 4), GangShape(1, 4)))
    row = {"least": 4, "remaining": 4 * HOUR, "remaining_high": 4 * HOUR, "restart_seconds": 30.0}
    name = "trimtab:thrift=3600"
    early = round_of(cluster, [{**row, "deadline": 3 * HOUR}])
    assert ask(early, cluster, name, had=[0]).shape.tolist() == [0]
    assert ask(early, cluster, name, had=[0], now=1.75 * HOUR).shape.tolist() == [1]


def test_a_shape_beyond_the_budget_is_not_taken(round_of: RoundOf) -> None:
    parts = (NodeGroup("t4", "t4", 1, 4, 64.0, 1e12, price=4 / HOUR),)
    cluster = Cluster(parts, (GangShape(0, 1), GangShape(0, 4)))
    row = {"least": 1, "most": 4, "remaining": HOUR, "remaining_high": HOUR, "restart_seconds": 600.0}
    enough, little = (
        ask(round_of(cluster, [{**row, "budget": 5.0}]), cluster),
        round_of(cluster, [{**row, "budget": 1.0}]),
    )
    assert enough.shape.tolist() == [1]
    answer = ask(little, cluster)
    assert answer.shape.tolist() == [WAITING]
    assert "budget" in answer.why[0]


def test_a_tenant_that_had_little_comes_first(round_of: RoundOf) -> None:
    jobs = round_of(FOUR, [gang(id="a", tenant="rich"), gang(id="b", tenant="poor", remaining=5 * HOUR)])
    seen = {}
    for name in ("trimtab", "trimtab:fairness=0"):
        chosen, clock, given = policy(name), SimulatedClock(), Allocation.nothing(2)
        ran = []
        for _ in range(60):
            given = chosen.allocate(jobs, FOUR, given, clock)
            ran.append(jobs.tenants[jobs.tenant[int(np.flatnonzero(given.shape != WAITING)[0])]])
            clock.advance(60.0)
        seen[name] = set(ran)
        assert ran[0] == "rich"
    assert seen == {"trimtab": {"rich", "poor"}, "trimtab:fairness=0": {"rich"}}


def test_a_hard_deadline_that_nothing_can_meet_is_refused(round_of: RoundOf) -> None:
    rows = [gang(deadline=60.0, hard=True), gang(deadline=60.0)]
    assert ask(round_of(FOUR, rows), FOUR).refused == (0,)


def test_shapes_beyond_what_was_tried_are_not_chosen_but_worth_trying_for(round_of: RoundOf) -> None:
    """Growing from one to two only pays because two leads to four."""
    cluster = Cluster(
        (NodeGroup("t4", "t4", 1, 4, 64.0, 1e12),), (GangShape(0, 1), GangShape(0, 2), GangShape(0, 4))
    )
    row = {
        "least": 1,
        "most": 2,
        "remaining": 10 * HOUR,
        "remaining_high": 10 * HOUR,
        "restart_seconds": 250.0,
    }
    jobs = replace(round_of(cluster, [row]), speed=np.array([[1.0, 1.1, 4.0]]))
    assert ask(jobs, cluster, had=[0]).shape.tolist() == [1]
    dull = replace(jobs, speed=np.array([[1.0, 1.1, 1.1]]))
    assert ask(dull, cluster, had=[0]).shape.tolist() == [0]


def test_an_unknown_speed_is_tried(round_of: RoundOf) -> None:
    jobs = replace(round_of(FOUR, [{"least": 4}]), speed=np.full((1, 3), np.nan))
    assert ask(jobs, FOUR).shape.tolist() == [2]


def test_reserved_nodes_are_paid_for_anyway(round_of: RoundOf) -> None:
    parts = (
        NodeGroup("spot", "t4", 1, 4, 64.0, 1e12, price=1 / HOUR, market=Market.SPOT),
        NodeGroup("ours", "t4", 1, 4, 64.0, 1e12, price=9 / HOUR, market=Market.RESERVED),
    )
    row = {"least": 4, "remaining": HOUR, "remaining_high": HOUR}
    for market, name in ((Market.RESERVED, "ours"), (Market.ON_DEMAND, "spot")):
        cluster = Cluster((parts[0], replace(parts[1], market=market)), (GangShape(0, 4), GangShape(1, 4)))
        answer = ask(round_of(cluster, [row]), cluster, "trimtab:thrift=600")
        assert cluster.groups[cluster.shape_group[answer.shape[0]]].name == name


def test_parts_of_nodes_that_fit_nobody_are_avoided(round_of: RoundOf) -> None:
    parts = (NodeGroup("fours", "t4", 1, 4, 64.0, 1e12), NodeGroup("threes", "t4", 1, 3, 64.0, 1e12))
    cluster = Cluster(parts, (GangShape(0, 3), GangShape(1, 3)))
    row = {"least": 3, "remaining": HOUR, "remaining_high": HOUR}
    assert ask(round_of(cluster, [row]), cluster).shape.tolist() == [1]


def test_estimates_that_are_wrong_by_half_or_twice_hardly_hurt() -> None:
    """120 jobs on 16 accelerators, with work believed to be from half to twice as much."""
    draw = np.random.default_rng(3)
    cluster = Cluster((NodeGroup("t4", "t4", 4, 4, 64.0, 1e12),), tuple(GangShape(0, n) for n in (1, 2, 4)))
    sizes = draw.choice([1, 1, 1, 2, 4], 120)
    work = np.exp(draw.normal(7.0, 1.2, 120)) * sizes
    jobs = [
        Job(f"j{n}", Workload(f"j{n}"), 150.0 * n, Worker(1.0, 1.0, 0.0), int(size), int(size))
        for n, size in enumerate(sizes)
    ]
    rates = {size: np.where(cluster.shape_workers == size, float(size), 0.0) for size in (1, 2, 4)}

    def hours(name: str, wrong: np.ndarray) -> float:
        world = TabularWorld(jobs, cluster, sizes.tolist(), rates, work, work * wrong)
        return float(simulate(jobs, cluster, world, policy(name)).completion.mean()) / HOUR

    known = hours("trimtab", np.ones(120))
    assert hours("trimtab", 2.0 ** draw.uniform(-1.0, 1.0, 120)) < 1.1 * known
    assert hours("fifo", np.ones(120)) > 1.5 * known  # there is something to lose
