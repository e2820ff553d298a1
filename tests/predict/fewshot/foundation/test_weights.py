"""Taken apart and put together again, a predictor is the same one."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.predict.fewshot import Case, FittedCurves, FittedOurs
from trimtab.predict.fewshot.foundation.weights import from_weights, to_weights

# Log seconds in single precision are off by less than that, and a leaf's border may fall in between.
SINGLE = 1e-5


@pytest.fixture(scope="module")
def again(fitted: FittedOurs) -> FittedOurs:
    return from_weights(*to_weights(fitted))


@pytest.mark.parametrize("known", [[2], [0, 4], [1, 3, 5]])
def test_answers_ranges_and_rules_are_those_of_the_original(
    fitted: FittedOurs, again: FittedOurs, cases: tuple[Case, ...], known: list[int]
) -> None:
    rows = np.array(known)
    for case in cases[9:]:
        seen = case.seen_at(rows)
        np.testing.assert_allclose(again.predict(seen, rows), fitted.predict(seen, rows), rtol=SINGLE)
        for mine, original in zip(again.interval(seen, rows), fitted.interval(seen, rows), strict=True):
            np.testing.assert_allclose(mine, original, rtol=SINGLE)
        for name, rule in fitted.rules.items():
            np.testing.assert_allclose(
                again.rules[name].predict(seen, rows), rule.predict(seen, rows), rtol=SINGLE
            )


def test_in_an_environment_nobody_was_tested_in_they_are_the_same_too(
    fitted: FittedOurs, again: FittedOurs, cases: tuple[Case, ...]
) -> None:
    rows = np.array([2])
    abroad = replace(cases[-1], environment="elsewhere").seen_at(rows)
    for mine, original in zip(again.interval(abroad, rows), fitted.interval(abroad, rows), strict=True):
        np.testing.assert_allclose(mine, original, rtol=SINGLE)


def test_what_the_backtest_said_comes_back_to_the_digit(fitted: FittedOurs, again: FittedOurs) -> None:
    for name in ("shares", "caution", "margins", "coverage", "errors", "environments"):
        assert getattr(again, name) == getattr(fitted, name), name


def test_a_second_round_changes_nothing(again: FittedOurs) -> None:
    arrays, words = to_weights(again)
    arrays_again, words_again = to_weights(from_weights(arrays, words))
    assert words_again == words
    assert arrays_again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(arrays_again[name], array)


def test_how_unlike_a_run_is_comes_back(
    fitted: FittedOurs, again: FittedOurs, cases: tuple[Case, ...]
) -> None:
    rows = np.array([1])
    first, second = fitted.members[0], again.members[0]
    assert isinstance(first, FittedCurves)
    assert isinstance(second, FittedCurves)
    for case in cases:
        expected = first.unlikeness(case, rows)
        assert second.unlikeness(case, rows) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_numbers_are_kept_in_single_precision_and_nothing_in_double(fitted: FittedOurs) -> None:
    arrays, _ = to_weights(fitted)
    assert all(array.dtype != np.float64 for array in arrays.values())


def test_what_cannot_be_put_together_again_is_not_taken_apart(fitted: FittedOurs) -> None:
    class Stranger:
        pass

    with pytest.raises(TypeError, match="Stranger cannot be kept as weights"):
        to_weights(replace(fitted, members=(*fitted.members, Stranger())))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="without curves"):
        to_weights(replace(fitted, members=fitted.members[1:], shares=(1.0,)))
