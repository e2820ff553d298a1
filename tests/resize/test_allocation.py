"""Caps shared among containers: never exceeded, fair, and no container below what it uses."""

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from trimtab.resize import (
    MemorySettings,
    fair_limits,
    floors_within,
    granted,
    grown,
    reclaimed,
    urgently_reclaimed,
)

SLACK = 1e-9
MIB = 2**20
SETTINGS = MemorySettings()
POOL = np.array([0, 0, 0])


@st.composite
def crowds(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Some containers' wishes, floors that fit, their pools, and the caps."""
    pools, count = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    cap = draw(arrays.arrays(float, pools, elements=st.floats(0.01, 100.0)))
    pool = draw(arrays.arrays(np.intp, count, elements=st.integers(0, pools - 1)))
    wanted = draw(arrays.arrays(float, count, elements=st.floats(0.0, 200.0)))
    floor = draw(arrays.arrays(float, count, elements=st.floats(0.0, 5.0)))
    return wanted, floors_within(floor, pool, cap), pool, cap


def _sums(limit: np.ndarray, pool: np.ndarray, cap: np.ndarray) -> np.ndarray:
    return np.bincount(pool, limit, len(cap))


@given(crowds())
def test_limits_fit_the_cap_and_respect_the_floor(
    crowd: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    wanted, floor, pool, cap = crowd
    limit = fair_limits(wanted, floor, pool, cap)
    assert (_sums(limit, pool, cap) <= cap * (1 + SLACK)).all()
    assert (limit >= floor).all()
    assert (limit <= np.maximum(wanted, floor) + SLACK).all()


@given(crowds())
def test_nothing_is_left_over_while_somebody_wants_more(
    crowd: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    wanted, floor, pool, cap = crowd
    limit = fair_limits(wanted, floor, pool, cap)
    hungry = limit < np.maximum(wanted, floor) * (1 - 1e-6) - 1e-6
    left = (cap - _sums(limit, pool, cap))[pool]
    assert (left[hungry] <= 1e-6 * np.maximum(cap[pool][hungry], 1.0)).all()


@given(crowds())
def test_who_goes_without_has_at_least_as_much_extra_as_anyone_else_in_the_pool(
    crowd: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    wanted, floor, pool, cap = crowd
    limit = fair_limits(wanted, floor, pool, cap)
    extra = limit - floor
    hungry = extra < np.maximum(wanted - floor, 0.0) * (1 - 1e-6) - 1e-6
    for one in np.flatnonzero(hungry):
        assert (extra[pool == pool[one]] <= extra[one] + 1e-6).all()


def test_who_wants_little_gets_all_of_it_and_the_others_share_the_rest() -> None:
    pool = np.array([0, 0, 0, 1])
    limit = fair_limits(np.array([1.0, 8.0, 8.0, 3.0]), np.zeros(4), pool, np.array([10.0, 2.0]))
    np.testing.assert_allclose(limit, [1.0, 4.5, 4.5, 2.0])


@given(crowds(), st.data())
def test_between_any_two_writes_the_sum_stays_within_the_cap(
    crowd: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    wanted, floor, pool, cap = crowd
    before = fair_limits(
        data.draw(arrays.arrays(float, len(wanted), elements=st.floats(0.0, 200.0))), floor, pool, cap
    )
    target = fair_limits(wanted, floor, pool, cap)
    in_force = before.copy()
    fails = data.draw(arrays.arrays(bool, len(wanted)))
    for one in data.draw(st.permutations(range(len(wanted)))):
        if not fails[one]:
            in_force[one] = min(target[one], before[one])
        assert (_sums(in_force, pool, cap) <= cap * (1 + SLACK)).all()
    goal = grown(target, in_force, pool, cap)
    assert (goal >= in_force).all()
    for one in data.draw(st.permutations(range(len(wanted)))):
        in_force[one] = goal[one]
        assert (_sums(in_force, pool, cap) <= cap * (1 + SLACK)).all()


def test_what_could_not_be_taken_is_not_given_to_others() -> None:
    pool, cap = np.array([0, 0]), np.array([4.0])
    target, stuck = np.array([1.0, 3.0]), np.array([3.0, 1.0])  # the first one's shrinking has failed
    np.testing.assert_allclose(grown(target, stuck, pool, cap), [3.0, 1.0])
    np.testing.assert_allclose(grown(target, np.minimum(target, stuck), pool, cap), [1.0, 3.0])


def test_too_many_floors_share_the_cap() -> None:
    pool, cap = np.zeros(8, dtype=np.intp), np.array([1.0])
    floor = floors_within(np.full(8, 0.5), pool, cap)
    np.testing.assert_allclose(floor, 0.125)
    np.testing.assert_allclose(fair_limits(np.full(8, 2.0), floor, pool, cap), 0.125)


def _mib(*amounts: float) -> np.ndarray:
    return np.array(amounts) * MIB


def test_what_lies_far_above_use_is_taken_back_down_to_the_margin() -> None:
    limits = reclaimed(_mib(500, 120, 64), _mib(100, 100, 1), _mib(16, 16, 60), SETTINGS.margin)
    np.testing.assert_allclose(limits, _mib(150, 120, 60))


def test_who_ran_out_gets_a_block_or_a_quarter_more() -> None:
    limits, missing = granted(np.array([0, 2]), _mib(32, 100, 400), POOL, _mib(1000), SETTINGS)
    np.testing.assert_allclose(limits, _mib(48, 500))
    assert missing.tolist() == [0.0]


def test_in_a_scarce_pool_all_who_ask_get_the_same_part_and_the_rest_is_known_to_be_missing() -> None:
    limits, missing = granted(np.array([0, 1]), _mib(32, 32, 916), POOL, _mib(996), SETTINGS)
    np.testing.assert_allclose(limits, _mib(40, 40))
    np.testing.assert_allclose(missing, _mib(16))


def test_what_is_missing_comes_from_those_with_room_in_proportion() -> None:
    limits = urgently_reclaimed(
        _mib(48), _mib(100, 104, 40), _mib(32, 68, 40), _mib(16, 16, 16), POOL, SETTINGS
    )
    np.testing.assert_allclose(limits, _mib(68, 88, 40), atol=4096)


@given(
    arrays.arrays(float, 5, elements=st.floats(0, 900 * MIB)),
    arrays.arrays(float, 5, elements=st.floats(0.1, 1.0)),
    st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True).map(sorted),
    st.floats(1.0, 1.5),
)
def test_no_sequence_of_taking_and_giving_exceeds_the_cap_or_squeezes_anyone(
    limit: np.ndarray, part: np.ndarray, asks: list[int], room: float
) -> None:
    pool, floor = np.array([0, 0, 1, 1, 1]), np.full(5, 16.0 * MIB)
    limit = np.maximum(limit, floor)
    used, cap = limit * part, np.bincount(pool, limit, 2) * room
    after = limit.copy()
    after[asks], missing = granted(np.array(asks), limit, pool, cap, SETTINGS)
    assert (np.bincount(pool, after, 2) <= cap * (1 + 1e-12)).all()
    assert (after >= limit).all()
    squeezed = urgently_reclaimed(missing, after, used, floor, pool, SETTINGS)
    assert (squeezed <= after).all()
    assert (squeezed >= used).all()
    assert (squeezed >= np.minimum(floor, after)).all()
