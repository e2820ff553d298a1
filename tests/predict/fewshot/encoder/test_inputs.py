"""What the encoder is shown, and the simple answer it starts from."""

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Case, NearestKnown, Stretch
from trimtab.predict.fewshot.encoder.inputs import MOST_RUNS, Scaling, Seen, anchor, spread_out


def test_runs_are_padded_and_only_the_known_are_shown(case: Case) -> None:
    seen = Seen.of(case, np.array([1, 3]), np.array([0, 2, 4]))
    assert seen.is_run.tolist() == [[1, 1, 0]]
    assert seen.targets.shape[:2] == (1, 3)
    np.testing.assert_allclose(seen.log_seconds[0, :2], np.log(case.seconds[[1, 3]]))
    assert np.isnan(seen.runs[0, 2]).all()
    blind = Seen.of(case.seen_at(np.array([1, 3])), np.array([1, 3]), np.array([0, 2, 4]))
    for name in Seen.__slots__:
        np.testing.assert_array_equal(getattr(blind, name), getattr(seen, name))


def test_of_many_known_runs_the_fastest_the_slowest_and_a_middle_one_are_looked_at(case: Case) -> None:
    chosen = spread_out(case, np.arange(len(case)))
    assert len(chosen) == MOST_RUNS
    assert case.seconds[chosen].min() == case.seconds.min()
    assert case.seconds[chosen].max() == case.seconds.max()


def test_it_starts_from_the_cpu_share_where_that_differs_and_from_the_nearest_run_elsewhere(
    case: Case,
) -> None:
    known = np.array([2])
    np.testing.assert_allclose(np.exp(anchor(case, known)), Stretch().predict(case, known))
    large = case.only(case.setting("cpus") >= 1)
    known = np.array([0])
    assert len(large) > 1
    np.testing.assert_allclose(np.exp(anchor(large, known)), NearestKnown().predict(large, known))


def test_nothing_known_is_refused(case: Case) -> None:
    with pytest.raises(BadInputError, match="needs one at least"):
        Seen.of(case, np.array([], dtype=int))
    with pytest.raises(BadInputError, match="has no time"):
        Seen.of(case.seen_at(np.array([0])), np.array([1]))


def test_scaling_keeps_what_is_unknown_and_bounds_what_is_far() -> None:
    rows = np.array([[1.0, 5.0, np.nan], [3.0, 5.0, np.nan]])
    scaling = Scaling.of(rows)
    np.testing.assert_allclose(scaling(rows), [[-1, 5, np.nan], [1, 5, np.nan]])
    assert scaling(np.array([[1e30, 0.0, 0.0]]))[0, 0] == 10
