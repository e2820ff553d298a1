"""Faults come from one seed, at their rates, whatever the policy does."""

import numpy as np
import pytest

from trimtab.schedule import Group, Market
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.faults import FaultRates, NodeFault, NoFaults, RandomFaults

OWN = Group("own", "a", 40, 8, 8.0, 1.0, reclaims=1.0)
SPOT = Group("spot", "a", 40, 8, 8.0, 1.0, market=Market.SPOT, reclaims=1e-3)
JOBS = np.arange(3)


def _faults(rates: FaultRates, seed: int = 0, until: float = 1e5) -> list[NodeFault]:
    return list(RandomFaults((OWN, SPOT), rates, seed).until(until))


def test_nodes_go_at_their_rate_and_come_back_when_repaired() -> None:
    faults = _faults(FaultRates(node_loss=1e-3, repair=500.0, refill=100.0))
    assert faults == sorted(faults, key=lambda fault: fault.time)
    # Once in 1,000 s and away for 500; spot nodes, twice as often, for 100.
    lost = [sum(fault.group == group and not fault.back for fault in faults) for group in (0, 1)]
    assert lost[0] == pytest.approx(40 * 1e5 / 1500, rel=0.1)
    assert lost[1] == pytest.approx(40 * 1e5 / 600, rel=0.1)
    gone: dict[tuple[int, int], float] = {}
    for fault in faults:
        place = (fault.group, fault.node)
        if fault.back:
            assert fault.time - gone.pop(place) == pytest.approx(500.0 if fault.group == 0 else 100.0)
        else:
            assert place not in gone
            gone[place] = fault.time


def test_only_spot_nodes_are_reclaimed() -> None:
    assert {fault.group for fault in _faults(FaultRates())} == {1}


def test_a_seed_decides() -> None:
    rates = FaultRates(node_loss=1e-4)
    assert _faults(rates, seed=1) == _faults(rates, seed=1)
    assert _faults(rates, seed=1) != _faults(rates, seed=2)


def test_it_does_not_matter_how_often_one_asks() -> None:
    rates = FaultRates(node_loss=1e-3)
    often = RandomFaults((OWN, SPOT), rates)
    assert [fault for now in range(0, 10_001, 100) for fault in often.until(now)] == _faults(rates, until=1e4)


def test_a_job_fails_after_the_same_time_of_running_whoever_else_runs() -> None:
    rates = FaultRates(job_failure=1e-3)
    crowd, alone = (RandomFaults((OWN,), rates, seed=5) for _ in range(2))
    for _ in range(5):
        left = crowd.lifetimes(JOBS)
        assert left[2] == alone.lifetimes(JOBS[2:])[0]
        crowd.lived(JOBS, left)
        alone.lived(JOBS[2:], left[2:] / 2)
        assert alone.lifetimes(JOBS[2:])[0] == pytest.approx(left[2] / 2)
        alone.lived(JOBS[2:], alone.lifetimes(JOBS[2:]))


def test_jobs_fail_at_their_rate() -> None:
    faults = RandomFaults((OWN,), FaultRates(job_failure=1e-3))
    assert faults.lifetimes(np.arange(2000)).mean() == pytest.approx(1000.0, rel=0.1)
    assert np.isinf(RandomFaults((OWN,), FaultRates()).lifetimes(JOBS)).all()


def test_a_gang_is_as_slow_as_its_slowest_node_and_as_frail_as_all_of_them() -> None:
    faults = RandomFaults((OWN, SPOT), FaultRates(node_loss=1e-4, slow=0.5, slowness=3.0, job_failure=1e-5))
    slow = [faults.slowness(Placement(1, ((node, 1),), (1.0, 1.0, 0.0))) for node in range(40)]
    assert set(slow) == {1.0, 3.0}
    gang = Placement(1, ((slow.index(1.0), 4), (slow.index(3.0), 4)), (1.0, 1.0, 0.0))
    assert faults.slowness(gang) == 3.0
    assert faults.hazard(gang) == pytest.approx(2 * (1e-4 + 1e-3) + 1e-5)


def test_nothing_happens_where_nothing_goes_wrong() -> None:
    none = NoFaults()
    assert list(none.until(1e9)) == []
    assert none.slowness(Placement(0, ((0, 1),), (1.0, 1.0, 0.0))) == 1.0
    assert np.isinf(none.lifetimes(JOBS)).all()
