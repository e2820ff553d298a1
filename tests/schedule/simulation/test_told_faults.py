"""Faults as they are typed."""

from dataclasses import replace

import pytest

from trimtab.core import BadInputError
from trimtab.schedule import Group, Market
from trimtab.schedule.simulation.faults import FaultRates, FaultSettings, RandomFaults, parse_faults

SPOT = Group("spot", "t4", 1, 4, 8, 1e9, market=Market.SPOT)
OWN = Group("own", "t4", 1, 4, 8, 1e9)


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
    ("text", "sentence"),
    [
        ("node-los=1/h", "did you mean node-loss"),
        ("node-loss", "written name=value"),
        ("node-loss=often", "like 0.05/h or 1/30d"),
        ("slow=150%", "not a share of nodes"),
        ("slowness=0.5", "at least 1"),
        ("repair=0s", "never gone"),
        ("spot=1/0h", "like 0.05/h"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        parse_faults(text)


def test_a_told_rate_is_that_of_spot_groups_and_needs_one() -> None:
    spot, own = parse_faults("spot=3600/h").groups([SPOT, OWN])
    assert (spot.reclaims, own.reclaims) == (1.0, 0.0)
    with pytest.raises(BadInputError, match="no group of the cluster is of the market spot"):
        parse_faults("spot=1/h").groups([OWN])


def test_spot_nodes_are_reclaimed_even_if_nothing_else_goes_wrong() -> None:
    assert not FaultSettings().source([SPOT, OWN], seed=0).any
    assert isinstance(FaultSettings().source([replace(SPOT, reclaims=0.1)], seed=0), RandomFaults)
    assert parse_faults("slow=0.5").source([OWN], seed=0).any
