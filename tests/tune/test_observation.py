"""What a trial showed: what cannot be is refused."""

import math

import pytest

from trimtab.core import BadInputError
from trimtab.tune import Observation


@pytest.mark.parametrize(
    ("row", "seconds", "fidelity"),
    [(-1, 1.0, 1.0), (0, 0.0, 1.0), (0, math.nan, 1.0), (0, math.inf, 1.0), (0, 1.0, 0.0), (0, 1.0, 1.5)],
)
def test_what_cannot_be_is_refused(row: int, seconds: float, fidelity: float) -> None:
    with pytest.raises(BadInputError):
        Observation(row, seconds, fidelity=fidelity)


def test_a_failed_trial_needs_no_time() -> None:
    assert not Observation(0, math.nan, ok=False).ok
