"""The chance that a job fits in memory."""

import numpy as np
from hypothesis import given, strategies as st

from trimtab.predict.jobs.training import Fitting


def test_it_learns_that_jobs_need_more_than_their_local_peak() -> None:
    room = np.linspace(-1.0, 1.0, 80)
    learned = Fitting.learned(room, room > 0.25)
    assert 0.15 < learned.shift < 0.3
    assert learned.chance(np.array([0.5]))[0] > 0.9
    assert learned.chance(np.array([0.0]))[0] < 0.2


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=20), st.booleans())
def test_more_room_never_fits_worse_also_after_a_trial(room: list[float], fitted: bool) -> None:
    places = np.sort(np.array(room))
    chance = Fitting().given(places, np.array([len(places) // 2]), np.array([fitted]))
    assert (np.diff(chance) >= 0).all()
    assert chance[len(places) // 2] == fitted
