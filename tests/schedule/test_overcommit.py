"""A node promises no more than its workloads' common peak allows, and gets it back in order."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from trimtab.schedule import Occupant, Overcommit, common_peak, excess_use, promisable, reclaim

Floats = NDArray[np.float64]
RULE = Overcommit(percentile=95.0, reserve=0.1, limit=1.5, samples=20)


def test_two_that_take_turns_need_the_room_of_one() -> None:
    turns = np.arange(100) % 2
    usage = np.column_stack((8.0 * turns, 8.0 * (1 - turns)))
    requests = np.array([8.0, 8.0])
    assert common_peak(usage, requests, RULE) == 8.0
    assert promisable(16.0, usage, requests, RULE) == pytest.approx(0.9 * 16 - 8)


def test_whoever_was_hardly_seen_counts_with_its_request() -> None:
    usage = np.full((100, 2), 1.0)
    usage[:90, 1] = np.nan
    assert common_peak(usage, np.array([4.0, 6.0]), RULE) == 1.0 + 6.0
    assert promisable(8.0, np.full((3, 1), 0.1), np.array([4.0]), RULE) == pytest.approx(0.9 * 8 - 4)


def test_an_empty_node_promises_all_but_its_reserve() -> None:
    assert promisable(10.0, np.empty((0, 0)), np.empty(0), RULE) == 9.0


def test_the_limit_holds_where_nobody_uses_anything() -> None:
    assert promisable(10.0, np.zeros((50, 1)), np.array([12.0]), RULE) == 3.0


@settings(deadline=None)
@given(
    arrays(float, (40, 4), elements=st.floats(0, 1)),
    arrays(float, 4, elements=st.floats(0.1, 16)),
    st.floats(0.1, 64),
)
def test_never_more_is_promised_than_the_percentile_rule_allows(
    usage: Floats, requests: Floats, capacity: float
) -> None:
    used = usage * requests
    more = promisable(capacity, used, requests, RULE)
    together = np.percentile(used.sum(axis=1), RULE.percentile)
    assert more == 0.0 or together + more <= (1 - RULE.reserve) * capacity + 1e-9
    assert more == 0.0 or requests.sum() + more <= RULE.limit * capacity + 1e-9
    # and no less than without overcommitment
    assert more >= min((1 - RULE.reserve), RULE.limit) * capacity - requests.sum() - 1e-9


def test_a_hot_node_must_cool_down_into_its_reserve() -> None:
    assert excess_use(9.5, 10.0, RULE) == pytest.approx(0.5)
    assert excess_use(8.0, 10.0, RULE) == 0.0


def test_borrowers_give_first_then_the_low_then_the_young() -> None:
    occupants = [
        Occupant("old", 4.0, priority=0, started=1.0),
        Occupant("young", 4.0, priority=0, started=9.0),
        Occupant("low", 4.0, priority=-10, started=0.0),
        Occupant("borrower", 4.0, borrowed=True, priority=20, started=0.0),
    ]
    assert [name for name, _ in reclaim(occupants, 16.0).parts] == ["borrower", "low", "young", "old"]
    assert reclaim(occupants, 5.0).parts == (("borrower", 4.0), ("low", 1.0))


def test_memory_comes_back_whole_or_not_at_all() -> None:
    taken = reclaim([Occupant("a", 8.0, divisible=False), Occupant("b", 8.0, divisible=False)], 3.0)
    assert taken.parts == (("a", 8.0),)
    assert taken.missing == 0.0


def test_what_nobody_can_give_is_said_to_be_missing() -> None:
    assert reclaim([Occupant("a", 8.0, keeps=6.0)], 5.0).missing == 3.0


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Occupant,
            id=st.uuids().map(str),
            used=st.floats(0, 100),
            keeps=st.floats(0, 100),
            borrowed=st.booleans(),
            priority=st.integers(-10, 20).map(float),
            started=st.floats(0, 1e6),
            divisible=st.booleans(),
        ),
        max_size=8,
    ),
    st.floats(0, 500),
)
def test_reclaiming_frees_enough_or_says_what_is_missing(occupants: list[Occupant], needed: float) -> None:
    taken = reclaim(occupants, needed)
    assert taken.amount + taken.missing >= needed - 1e-6
    gives = {occupant.id: occupant.gives for occupant in occupants}
    assert all(0 < part <= gives[name] for name, part in taken.parts)
    if taken.missing > 1e-6:
        assert taken.amount == pytest.approx(sum(gives.values()))
