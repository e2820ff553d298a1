import numpy as np
import pytest

from trimtab.predict.guard import (
    MODEL,
    RULE,
    Ground,
    judge,
    lost_backtest,
    out_of_distribution,
    too_wide,
)


def test_the_first_ground_that_applies_decides_each_row() -> None:
    verdict = judge(
        [
            out_of_distribution([1.0, 9.0, 9.0, 1.0], 4.0, "unlike"),
            lost_backtest(0.1, 0.2, "lost"),
            too_wide([2.0, 99.0, 1.0, 99.0]),
            Ground(MODEL, "better in the backtest"),
        ],
        rows=4,
    )
    assert verdict.by_model.tolist() == [True, False, False, False]
    assert [verdict.why(row) for row in range(3)] == ["better in the backtest", "unlike", "unlike"]
    assert "25" in verdict.why(3)
    assert verdict.words(0) == "the model answers: better in the backtest"
    assert verdict.chosen_by(1) == RULE
    again = verdict.at(np.array([3, 0, 0]))
    assert again.by_model.tolist() == [False, True, True]
    assert again.why(0) == verdict.why(3)


@pytest.mark.parametrize(("model", "rule", "by"), [(0.1, 0.2, MODEL), (0.2, 0.2, RULE), (np.nan, 0.2, RULE)])
def test_a_model_that_is_no_better_has_lost(model: float, rule: float, by: str) -> None:
    assert judge([lost_backtest(model, rule, "lost"), Ground(MODEL, "won")]).chosen_by() == by


def test_one_wide_range_names_its_width_and_the_limit() -> None:
    reason = judge([too_wide(31.4), Ground(MODEL, "won")]).why()
    assert "31" in reason
    assert "25" in reason


def test_somebody_must_answer_for_every_row() -> None:
    with pytest.raises(ValueError, match="no ground applies"):
        judge([Ground(MODEL, "won", np.array([True, False]))], rows=2)
