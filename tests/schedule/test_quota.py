"""Quotas: a tree of tenants, guarantees that are lent and reclaimed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.policies import policy
from trimtab.schedule.quota import Quotas, WithQuotas, jain_index
from trimtab.store import Tenant


@pytest.mark.parametrize(
    ("tenants", "parts"),
    [
        ([Tenant("a", "b"), Tenant("b", "c"), Tenant("c", "a")], ["a → b → c → a"]),
        ([Tenant("a", "a")], ["a → a"]),
        (
            [Tenant("lab", guarantee=8), Tenant("x", "lab", 6), Tenant("y", "lab", 4)],
            ["x and y", "10 accelerators", "8 of lab"],
        ),
        ([Tenant("x", "labb"), Tenant("lab")], ["tenant x", "labb", "did you mean lab?"]),
        ([Tenant("x"), Tenant("x")], ["tenant x"]),
        ([Tenant("x", guarantee=-1)], ["tenant x", "guarantee", "-1"]),
        ([Tenant("x", guarantee=float("nan"))], ["tenant x", "guarantee", "nan"]),
        ([Tenant("x", weight=0)], ["tenant x", "weight", "not 0"]),
        ([Tenant("x", guarantee=5, limit=4)], ["tenant x", "limit 4", "guarantee 5"]),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused(tenants: list[Tenant], parts: list[str]) -> None:
    with pytest.raises(BadInputError) as error:
        Quotas(tenants)
    assert all(part in str(error.value) for part in parts)


def test_a_line_goes_to_the_top() -> None:
    quotas = Quotas([Tenant("all", guarantee=9), Tenant("lab", "all", 5), Tenant("x", "lab", 5)])
    assert [tenant.name for tenant in quotas.line("x")] == ["x", "lab", "all"]
    assert quotas.line("stranger") == (Tenant("stranger"),)


@pytest.mark.parametrize(
    ("shares", "index"), [([3, 3, 3], 1.0), ([1, 0, 0, 0], 0.25), ([], 1.0), ([0, 0], 1.0), ([2, 1], 0.9)]
)
def test_jains_index(shares: list[float], index: float) -> None:
    assert jain_index(shares) == pytest.approx(index)


RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("a", "a", 2, 4, 64.0, 1e9), NodeGroup("b", "b", 1, 4, 64.0, 1e9))
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))
NAMES = ("x", "y", "z")


def use(jobs: JobColumns, shape: np.ndarray) -> dict[str, float]:
    taken = np.where(shape != WAITING, CLUSTER.shape_workers[shape], 0) * jobs.gpus
    return {name: float(taken[jobs.tenant == index].sum()) for index, name in enumerate(jobs.tenants)}


def twice(tenants: list[Tenant], jobs: JobColumns, name: str) -> list[Allocation]:
    """A round of the policy alone, as if quotas had just been set, and one with quotas; then another."""
    inner, clock = policy(name), SimulatedClock()
    before = inner.allocate(jobs, CLUSTER, Allocation.nothing(len(jobs)), clock)
    chosen = WithQuotas(inner, Quotas(tenants))
    clock.advance(60.0)
    first = chosen.allocate(jobs, CLUSTER, before, clock)
    clock.advance(60.0)
    return [first, chosen.allocate(jobs, CLUSTER, first, clock)]


@st.composite
def a_tree(draw: st.DrawFn) -> list[Tenant]:
    """x and y below a lab, z by itself; guarantees that the cluster can hold."""
    x, y, z = (draw(st.integers(0, 3)) for _ in range(3))
    lab = x + y + draw(st.integers(0, 3))
    limits = [draw(st.none() | st.integers(0, 6)) for _ in range(4)]
    over = [None if more is None else base + more for base, more in zip((lab, x, y, z), limits, strict=True)]
    return [
        Tenant("lab", guarantee=lab, limit=over[0]),
        Tenant("x", "lab", x, limit=over[1]),
        Tenant("y", "lab", y, weight=2.0, limit=over[2]),
        Tenant("z", None, z, limit=over[3]),
    ]


def some_jobs(sizes: Any) -> Any:
    job = st.fixed_dictionaries(
        {"tenant": st.sampled_from(NAMES), "least": sizes, "priority": st.sampled_from([0.0, 10.0])},
        optional={"most": st.just(8)},
    )
    return st.lists(job, max_size=25)


POLICY = st.sampled_from(["fifo", "srtf", "drf", "priority", "maxmin"])


@given(a_tree(), some_jobs(st.sampled_from([1, 2, 4])), POLICY)
@settings(max_examples=120, deadline=None)
def test_limits_and_capacity_are_never_exceeded(
    round_of: RoundOf, tree: list[Tenant], rows: Any, name: str
) -> None:
    jobs = round_of(CLUSTER, rows)
    for answer in twice(tree, jobs, name):
        used = use(jobs, answer.shape)
        used["lab"] = used.get("x", 0.0) + used.get("y", 0.0)
        for tenant in tree:
            assert tenant.limit is None or used.get(tenant.name, 0.0) <= tenant.limit + 1e-6
        for group in range(len(PARTS)):
            here = (answer.shape != WAITING) & (CLUSTER.shape_group[answer.shape] == group)
            assert (CLUSTER.shape_workers[answer.shape[here]]).sum() <= CLUSTER.capacity[group, 0]


@given(a_tree(), some_jobs(st.just(1)), POLICY)
@settings(max_examples=120, deadline=None)
def test_who_has_demand_gets_its_guarantee_within_a_round(
    round_of: RoundOf, tree: list[Tenant], rows: Any, name: str
) -> None:
    jobs = round_of(CLUSTER, rows)
    first = twice(tree, jobs, name)[0]
    used, wanted = use(jobs, first.shape), {n: sum(row["tenant"] == n for row in rows) for n in NAMES}
    for tenant in tree[1:]:
        assert used.get(tenant.name, 0.0) >= min(tenant.guarantee, wanted[tenant.name])
    lab = tree[0]
    assert used.get("x", 0.0) + used.get("y", 0.0) >= min(
        lab.guarantee, sum(min(wanted[t.name], np.inf if t.limit is None else t.limit) for t in tree[1:3])
    )


def test_idle_guarantees_are_lent_and_taken_back(round_of: RoundOf) -> None:
    tenants = [Tenant("owner", guarantee=6), Tenant("guest")]
    chosen, clock = WithQuotas(policy("fifo"), Quotas(tenants)), SimulatedClock()
    guests = [{"id": f"g{n}", "tenant": "guest", "submitted": float(n)} for n in range(12)]
    guests[11]["priority"] = 10.0
    alone = round_of(CLUSTER, guests)
    lent = chosen.allocate(alone, CLUSTER, Allocation.nothing(12), clock)
    assert use(alone, lent.shape) == {"guest": 12.0}
    owners = [{"id": f"o{n}", "tenant": "owner", "submitted": 50.0} for n in range(8)]
    both = round_of(CLUSTER, guests + owners)
    before = Allocation(np.concatenate((lent.shape, np.full(8, WAITING))), np.arange(20))
    answer = chosen.allocate(both, CLUSTER, before, clock)
    assert use(both, answer.shape) == {"guest": 6.0, "owner": 6.0}
    # The youngest of the lowest priority went.
    assert np.flatnonzero(answer.shape[:12] != WAITING).tolist() == [0, 1, 2, 3, 4, 11]
    assert all(part in answer.why[10] for part in ("tenant guest", "0 guaranteed accelerators"))


def test_an_elastic_borrower_shrinks_to_its_guarantee(round_of: RoundOf) -> None:
    tenants = [Tenant("big", guarantee=2), Tenant("owner", guarantee=10)]
    rows = [{"tenant": "big", "least": 1, "most": 8, "speed": [1.0, 0.0]}]
    jobs = round_of(CLUSTER, rows + [{"tenant": "owner", "submitted": 1.0}] * 12)
    answer = twice(tenants, jobs, "fifo")[0]
    assert use(jobs, answer.shape) == {"big": 2.0, "owner": 10.0}


def test_a_family_lends_within_itself_first(round_of: RoundOf) -> None:
    tenants = [Tenant("lab", guarantee=8), Tenant("x", "lab", 4), Tenant("y", "lab", 4), Tenant("z", None, 0)]
    rows = [{"tenant": "z", "submitted": 0.0}] * 12 + [{"tenant": "x", "submitted": 1.0}] * 12
    jobs = round_of(CLUSTER, rows)
    assert use(jobs, twice(tenants, jobs, "fifo")[0].shape) == {"z": 4.0, "x": 8.0}


def test_where_quotas_hold_already_the_policy_decides(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"tenant": "x", "remaining": 5.0}] * 14)
    clock, nothing = SimulatedClock(), Allocation.nothing(14)
    alone = policy("srtf").allocate(jobs, CLUSTER, nothing, clock)
    within = WithQuotas(policy("srtf"), Quotas([Tenant("x", guarantee=4)]))
    assert within.allocate(jobs, CLUSTER, nothing, clock).shape.tolist() == alone.shape.tolist()
