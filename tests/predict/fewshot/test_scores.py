import math

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Predictions, combine, score


def _predictions(predicted: list[float], measured: list[float]) -> Predictions:
    return Predictions(("x", "x", "y")[: len(predicted)], ("a", "a", "b")[: len(predicted)],
                       np.array(predicted), np.array(measured))  # fmt: skip


def test_means_are_over_cases_and_the_median_over_predictions() -> None:
    found = score(_predictions([1.1, 1.3, 2.0], [1.0, 1.0, 1.0]))
    assert found.mean_ape == pytest.approx((0.2 + 1.0) / 2)
    assert found.median_ape == pytest.approx(0.3)
    assert found.mean_log_ratio == pytest.approx(((math.log(1.1) + math.log(1.3)) / 2 + math.log(2)) / 2)
    assert found.standard_error == pytest.approx(0.4)
    assert (found.predictions, found.seed_deviation) == (3, None)


def test_twice_and_half_are_as_far_off_in_log_ratio() -> None:
    twice, half = (score(_predictions([p], [1.0])).mean_log_ratio for p in (2.0, 0.5))
    assert twice == half == pytest.approx(math.log(2))


def test_one_application_has_no_standard_error() -> None:
    assert math.isnan(score(_predictions([1.0, 2.0], [1.0, 1.0])).standard_error)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_prediction_that_is_no_time_is_refused(wrong: float) -> None:
    with pytest.raises(BadInputError, match="not a positive number of seconds"):
        score(_predictions([1.0, wrong], [1.0, 1.0]))


def test_nothing_cannot_be_scored_or_combined() -> None:
    with pytest.raises(BadInputError, match="no prediction to score"):
        score(_predictions([], []))
    with pytest.raises(BadInputError, match="no scores to combine"):
        combine([])


def test_seeds_are_averaged_and_their_deviation_kept() -> None:
    runs = [score(_predictions([p, p, p], [1.0, 1.0, 1.0])) for p in (1.1, 1.3)]
    both = combine(runs)
    assert both.mean_ape == pytest.approx(0.2)
    assert both.seed_deviation == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert both.predictions == 6
    assert combine(runs[:1]).seed_deviation is None
