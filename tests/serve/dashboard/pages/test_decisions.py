"""The ledger in rows, and who was right."""

import pytest

from trimtab.core import Answer, BadInputError, Decision, Estimate, Outcome
from trimtab.serve.dashboard.pages.decisions import LEDGER, answer_rows, figures, measured_of, outcome_words
from trimtab.serve.dashboard.widgets import table_rows
from trimtab.serve.operations import calibrations


def guess(value: float) -> dict[str, Estimate]:
    return {"time": Estimate(value, 0.5 * value, 2 * value, 0.9, "s")}


@pytest.fixture
def made() -> Decision:
    action = {"cloud": "aws", "region": "us-east-1", "instance": "g5.xlarge", "nodes": 2, "spot": True}
    rule, model = Answer("rule:roofline", action, guess(100.0)), Answer("model:encoder", action, guess(60.0))
    return Decision("d1", 0.0, "recommend", "resnet", action, guess(60.0), "model", rule, model, (), "why")


def test_a_row_has_both_answers_and_what_happened(made: Decision) -> None:
    entries = [(made, Outcome("d1", 1.0, {"time": 66.0})), (made, None)]
    with_outcome, without = table_rows(LEDGER, entries)
    assert with_outcome["action"] == "aws us-east-1 g5.xlarge ×2 spot"
    assert (with_outcome["rule_expects"], with_outcome["model_expects"]) == ("time 1m40s", "time 1m")
    assert with_outcome["outcome"] == "time 1m06s"
    assert without["outcome"] == ""


def test_one_decision_says_by_how_much_it_was_off(made: Decision) -> None:
    (sentence,) = outcome_words(made, Outcome("d1", 1.0, {"time": 66.0}))
    assert "-9%" in sentence
    assert [role for role, _ in answer_rows(made)] == ["rule", "model"]


def test_all_kinds_together_have_a_win_rate_and_shares(made: Decision) -> None:
    outcomes = (Outcome("d1", 1.0, {"time": 66.0}),)
    result = dict(figures(calibrations([(made, outcomes)])))
    assert result == {
        "outcomes compared": "1",
        "ranges that held": "100%",
        "promised": "90%",
        "model nearer": "100% of 1",
    }


def test_an_outcome_that_is_typed_is_in_seconds_and_dollars() -> None:
    assert measured_of("2h", "$3") == {"time": 7200.0, "cost": 3.0}


@pytest.mark.parametrize(("time", "cost"), [("", ""), ("0s", ""), ("soon", ""), ("1h", "much")])
def test_an_outcome_that_says_nothing_is_refused(time: str, cost: str) -> None:
    with pytest.raises(BadInputError):
        measured_of(time, cost)
