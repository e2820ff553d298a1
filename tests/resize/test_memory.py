"""Memory: grants fit the cap, and nobody is left with less than it uses."""

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from trimtab.resize import MemorySettings, granted, reclaimed, urgently_reclaimed

MIB = 2**20
SETTINGS = MemorySettings()
POOL = np.array([0, 0, 0])


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
