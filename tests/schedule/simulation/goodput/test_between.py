"""Between scattered points."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.schedule.simulation.goodput_profiles import Between

GRID = np.array([[x, y, z] for x in (0.0, 1.0, 3.0) for y in (0.0, 2.0) for z in (0.0, 1.0, 5.0)])
SLOPES = np.array([[2.0, -1.0], [0.5, 3.0], [-4.0, 0.1]])
BETWEEN = Between(GRID, GRID @ SLOPES)


@settings(max_examples=50, deadline=None)
@given(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 2.0), st.floats(0.0, 5.0)))
def test_what_is_linear_stays_so(where: tuple[float, float, float]) -> None:
    assert BETWEEN(np.array(where)) == pytest.approx(np.array(where) @ SLOPES, abs=1e-9)


def test_outside_counts_the_nearest_or_the_mean_of_those_as_near() -> None:
    assert BETWEEN(np.array([9.0, 2.0, 6.0])) == pytest.approx(np.array([3.0, 2.0, 5.0]) @ SLOPES)
    assert BETWEEN(np.array([9.0, 1.0, 6.0])) == pytest.approx(np.array([3.0, 1.0, 5.0]) @ SLOPES)


def test_measured_points_are_as_measured() -> None:
    for point in GRID:
        assert BETWEEN(point) == pytest.approx(point @ SLOPES, abs=1e-9)
