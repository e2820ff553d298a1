"""Which configurations are top ones, and how well scores find them."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.predict.jobs.training import DataSet, area_under_curve, is_top, top_labels


def test_at_most_five_and_within_half_more_of_the_best() -> None:
    assert is_top(np.array([1.0, 1.4, 1.6, np.nan])).tolist() == [True, True, False, False]
    assert is_top(np.full(9, 2.0)).sum() == 5
    assert not is_top(np.array([np.nan, np.nan])).any()


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30), st.floats(0.01, 100.0))
def test_the_best_is_a_top_one_and_the_unit_does_not_matter(values: list[float], unit: float) -> None:
    numbers = np.array(values)
    top = is_top(numbers)
    assert top[numbers.argmin()]
    assert 1 <= top.sum() <= 5
    assert numbers[top].max() <= 1.5 * numbers.min()
    assert numbers[~top].min(initial=np.inf) >= min(numbers[top].max(), 1.5 * numbers.min())


def test_every_job_is_ranked_by_itself(data: DataSet) -> None:
    labels = top_labels(data.points, "cost")
    for job in data.points.jobs:
        mine = np.array(data.points.job) == job
        assert labels[mine].tolist() == is_top(data.points.of(job).cost).tolist()
    assert (labels & ~data.points.ok).sum() == 0


def test_the_area_counts_pairs_in_the_right_order() -> None:
    labels = np.array([True, False, False, True])
    assert area_under_curve(labels, np.array([4.0, 1.0, 2.0, 3.0])) == 1.0
    assert area_under_curve(labels, np.zeros(4)) == 0.5
    assert area_under_curve(labels, np.array([1.0, 2.0, 0.0, 3.0])) == 0.75
    with pytest.raises(BadInputError, match="both kinds"):
        area_under_curve(np.ones(3, dtype=bool), np.zeros(3))
