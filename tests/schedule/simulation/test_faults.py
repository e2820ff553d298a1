"""Faults come from one seed, at their rates, whatever the policy does."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.schedule import Market, NodeGroup
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.faults import (
    FaultRates,
    FaultSettings,
    NodeFault,
    RandomFaults,
    parse_faults,
)

OWN = NodeGroup("own", "a", 40, 8, 8.0, 1.0, reclaims=1.0)
SPOT = NodeGroup("spot", "a", 40, 8, 8.0, 1.0, market=Market.SPOT, reclaims=1e-3)
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
    none = RandomFaults()
    assert not none.active
    assert list(none.until(1e9)) == []
    assert none.slowness(Placement(0, ((0, 1),), (1.0, 1.0, 0.0))) == 1.0
    assert np.isinf(none.lifetimes(JOBS)).all()


SPOT_GROUP = NodeGroup("spot", "t4", 1, 4, 8, 1e9, market=Market.SPOT)
OWN_GROUP = NodeGroup("own", "t4", 1, 4, 8, 1e9)


def test_every_name_has_its_unit() -> None:
    told = parse_faults(
        "node-loss=1/30d, repair=2h,refill=10m,slow=2%,slowness=3,job-failure=0.36/h,spot=0.1"
    )
    assert told.rates == FaultRates(
        node_loss=pytest.approx(1 / 2_592_000),
        repair=7200.0,
        refill=600.0,
        slow=pytest.approx(0.02),
        slowness=3.0,
        job_failure=pytest.approx(1e-4),
    )
    assert told.reclaims == pytest.approx(0.1 / 3600)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("node-los=1/h", "node-loss"),
        ("node-loss", '"node-loss"'),
        ("node-loss=often", "often"),
        ("slow=150%", "150%"),
        ("slowness=0.5", "0.5"),
        ("repair=0s", "repair"),
        ("spot=1/0h", "1/0h"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(text: str, named: str) -> None:
    with pytest.raises(BadInputError, match="faults: ") as caught:
        parse_faults(text)
    assert named in str(caught.value)


def test_a_told_rate_is_that_of_spot_groups_and_needs_one() -> None:
    spot, own = parse_faults("spot=3600/h").groups([SPOT_GROUP, OWN_GROUP])
    assert (spot.reclaims, own.reclaims) == (1.0, 0.0)
    with pytest.raises(BadInputError, match="market: spot"):
        parse_faults("spot=1/h").groups([OWN_GROUP])


def test_spot_nodes_are_reclaimed_even_if_nothing_else_goes_wrong() -> None:
    assert not FaultSettings().source([SPOT_GROUP, OWN_GROUP], seed=0).active
    assert FaultSettings().source([replace(SPOT_GROUP, reclaims=0.1)], seed=0).active
    assert parse_faults("slow=0.5").source([OWN_GROUP], seed=0).active
