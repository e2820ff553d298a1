"""Reasons that add up, and a decision the ledger can keep."""

from collections.abc import Callable

import pytest

from trimtab.catalog import load_offers
from trimtab.core import Profile, SimulatedClock, from_plain, to_plain
from trimtab.core.decision import Decision
from trimtab.recommend import Recommendation, Request, bound, decision, explain_row, recommend, work
from trimtab.recommend.explain import contributions

MakeProfile = Callable[..., Profile]


@pytest.fixture
def result(make_profile: MakeProfile) -> Recommendation:
    profile = make_profile()
    return recommend(profile, load_offers(), Request(max_nodes=4, spot=True), work(profile))


def test_contributions_add_up_to_the_whole_time(result: Recommendation) -> None:
    for row in result.rows:
        parts = contributions(row, result.request.assume.startup)
        assert sum(c.value for c in parts) == pytest.approx(row.time.value)


def test_the_bound_names_the_largest_part(make_profile: MakeProfile) -> None:
    profile = make_profile("gpt2_s512")
    large = recommend(
        profile, load_offers(), Request(accelerators=("H100",), batch_sizes=(16,)), work(profile)
    )
    assert bound(large.rows[0]) == "compute-bound"
    small = make_profile("mlp_1024x4")
    tiny = recommend(small, load_offers(), Request(accelerators=("H100",), batch_sizes=(1,)), work(small))
    assert bound(tiny.rows[0]) == "launch-bound"
    waiting = make_profile(input_wait=10.0)
    slow = recommend(waiting, load_offers(), Request(accelerators=("H100",)), work(waiting))
    assert bound(slow.rows[0]) == "input-bound"


def test_a_network_too_slow_for_the_gradients_is_named(make_profile: MakeProfile) -> None:
    profile = make_profile("vgg16")
    rows = recommend(
        profile,
        load_offers(),
        Request(accelerators=("T4",), max_nodes=8, batch_sizes=(1,), objective="time", top=500),
        work(profile),
    ).rows
    spread = next(r for r in rows if r.configuration.nodes == 8 and r.configuration.offer.accelerators == 1)
    assert bound(spread) == "network-bound"


def test_an_explanation_gives_numbers_price_memory_and_evidence(result: Recommendation) -> None:
    text = "\n".join(explain_row(result, result.rows[1]))
    for part in (
        "Row 2",
        "one step of",
        "% of a step",
        "per million samples",
        "memory: a step needs",
        "evidence: time and cost by the analytic rule (constants of",
        "rule: time",
        "model: memory",
        "time: the rule answers",
        "memory: the model answers",
    ):
        assert part in text
    assert "× the time" in text


def test_the_decision_holds_the_rule_the_choice_and_the_alternatives(result: Recommendation) -> None:
    made = decision(result, SimulatedClock(1234.0), chosen=2)
    assert made.created == 1234.0
    assert made.action["instance"] == result.rows[1].configuration.offer.instance
    assert made.estimates["cost"] == result.rows[1].cost
    assert made.chosen_by == made.rule.who == "rule:analytic"
    assert made.rule.estimates["time"] == made.estimates["time"]
    assert made.model is not None
    assert set(made.model.estimates) == {"memory"}, "without earlier outcomes the model knows no time"
    assert made.model.estimates["memory"] != made.rule.estimates["memory"]
    assert "time: the rule answers: no earlier outcome" in made.reason
    assert "memory: the model answers: in the backtest" in made.reason
    assert len(made.alternatives) == len(result.rows) - 1
    assert from_plain(Decision, to_plain(made)) == made
