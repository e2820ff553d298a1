"""Equal shares of time."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.policies import policy
from trimtab.schedule.policies.maxmin import water_filled

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("fast", "fast", 1, 2, 64.0, 1e9), NodeGroup("slow", "slow", 1, 2, 64.0, 1e9))
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))


def accelerator_rounds(name: str, jobs: JobColumns, rounds: int) -> np.ndarray:
    chosen, clock, given = policy(name), SimulatedClock(), Allocation.nothing(len(jobs))
    had = np.zeros(len(jobs))
    for _ in range(rounds):
        given = chosen.allocate(jobs, CLUSTER, given, clock)
        had += np.where(given.shape != WAITING, CLUSTER.shape_workers[given.shape], 0)
        clock.advance(360.0)
    return had


def test_jobs_take_turns(round_of: RoundOf) -> None:
    had = accelerator_rounds("maxmin", round_of(CLUSTER, [{}] * 6), 60)
    assert had == pytest.approx(40, rel=0.1)


def test_tenants_share_evenly_however_many_jobs_they_have(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"tenant": "many"}] * 8 + [{"tenant": "few"}] * 2)
    had = accelerator_rounds("maxmin:over=tenants", jobs, 60)
    assert had[:8].sum() == pytest.approx(had[8:].sum(), rel=0.1)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=20), st.floats(0.0, 500.0))
@settings(deadline=None)
def test_water_filling_is_max_min(wanted: list[float], total: float) -> None:
    given = water_filled(np.array(wanted), total)
    assert (given <= np.array(wanted) + 1e-9).all()
    assert given.sum() == pytest.approx(min(total, sum(wanted)), abs=1e-6)
    short = given < np.array(wanted) - 1e-9
    if short.any():
        assert given[short].min() >= given.max() - 1e-9
