import numpy as np
from hypothesis import given, strategies as st

from trimtab.predict.backtest import (
    HeldOut,
    leave_one_group_out,
    predict_unseen,
    predict_unseen_pairs,
    random_folds,
)

LABELS = ["b", "a", "b", "c"]


def test_every_group_is_held_out_once_and_whole() -> None:
    folds = list(leave_one_group_out(LABELS))
    assert [fold.groups for fold in folds] == [("b",), ("a",), ("c",)]
    assert folds[0].rows.tolist() == [True, False, True, False]
    assert folds[0].training.tolist() == [False, True, False, True]


def test_every_pair_is_held_out_once() -> None:
    folds = list(leave_one_group_out(LABELS, together=2))
    assert [fold.groups for fold in folds] == [("b", "a"), ("b", "c"), ("a", "c")]
    assert folds[2].rows.tolist() == [False, True, False, True]


@given(
    groups=st.sets(st.text("abc-7", max_size=3), min_size=1), count=st.integers(1, 6), seed=st.integers(0, 5)
)
def test_random_folds_hold_every_group_once(groups: set[str], count: int, seed: int) -> None:
    folds = random_folds(sorted(groups), count, seed)
    assert sorted(name for fold in folds for name in fold) == sorted(groups)
    assert len(folds) == min(count, len(groups))
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    assert folds == random_folds(sorted(groups), count, seed)


def _mean_of_the_others(fold: HeldOut) -> tuple[np.ndarray]:
    values = np.array([1.0, 10.0, 3.0, 100.0])
    return (np.full(int(fold.rows.sum()), values[fold.training].mean()),)


def test_rows_are_predicted_by_fits_that_saw_nothing_of_their_group() -> None:
    description = list[str]()
    (result,) = predict_unseen(LABELS, _mean_of_the_others, description.append)
    assert result.tolist() == [55.0, 104 / 3, 55.0, 14 / 3]
    assert description == ["b", "a", "c"]


def test_pairs_are_predicted_by_fits_that_saw_neither_group() -> None:
    result = predict_unseen_pairs(LABELS, _mean_of_the_others)
    np.testing.assert_array_equal(result["a"][0], [100.0, np.nan, 100.0, 2.0])
    np.testing.assert_array_equal(result["b"][0], [np.nan, 100.0, np.nan, 10.0])
