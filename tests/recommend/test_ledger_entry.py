"""A recommendation learns from what became of earlier ones, in a real store, and is not easily fooled."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from trimtab.catalog import load_offers
from trimtab.core import Decision, Outcome, Profile, Workload
from trimtab.predict import EarlierRun
from trimtab.recommend import (
    Recommendation,
    Request,
    decision,
    explain_row,
    html_report,
    recommend,
    runs_after,
    work,
)
from trimtab.store import Store, open_store

MakeProfile = Callable[..., Profile]
ON_A10G = Request(accelerators=("A10G",), top=3)


def earlier_runs(store: Store, profile: Profile) -> Sequence[EarlierRun]:
    known = store.ledger.list(100, "recommend", profile.workload.name)
    return runs_after(known, store.ledger.outcomes, profile)


def ask(store: Store, profile: Profile, request: Request = ON_A10G) -> tuple[Recommendation, Decision]:
    """Recommend with what the store knows, and write the decision down."""
    result = recommend(profile, load_offers(), request, work(profile), tuple(earlier_runs(store, profile)))
    made = decision(result)
    store.ledger.record(made)
    return result, made


def report(store: Store, made: Decision, times: float, **measured: float) -> None:
    """The job took `times` as long as the rule estimated, without the start of the machines."""
    start = next(c.value for c in made.contributions if c.name == "starting the machines")
    seconds = start + times * (made.rule.estimates["time"].value - start)
    store.ledger.record_outcome(Outcome(made.id, made.created + seconds, measured or {"time": seconds}))


def test_the_rule_answers_first_and_an_outcome_moves_the_next_answer_towards_it(
    make_profile: MakeProfile,
) -> None:
    profile = make_profile()
    with open_store() as store:
        first, made = ask(store, profile)
        assert made.chosen_by == "rule:analytic"
        report(store, made, 1.4)
        second, after = ask(store, profile)
        kept = store.ledger.get(after.id)
    before, now = first.rows[0].time, second.rows[0].time
    assert before.value * 1.2 < now.value < before.value * 1.4
    assert now.high / now.low < before.high / before.low
    assert now.low < 1.4 * before.value < now.high
    assert kept.chosen_by == "model:corrected"
    assert kept.model is not None
    assert kept.rule.estimates["time"].value == pytest.approx(before.value)
    assert kept.model.estimates["time"] == kept.estimates["time"] == now
    assert "1.4 times slower" in kept.reason
    assert sum(c.value for c in kept.contributions) == pytest.approx(now.value)
    for text in ("\n".join(explain_row(second, second.rows[0])), html_report(second, "x")):
        assert "the model answers: 1 earlier outcome of this workload" in text
    assert any("the model answers" in note for note in second.notes)


def test_two_outcomes_that_agree_say_more_than_one(make_profile: MakeProfile) -> None:
    profile = make_profile()
    with open_store() as store:
        report(store, ask(store, profile)[1], 1.3)
        once, made = ask(store, profile)
        report(store, made, 1.3)
        twice, again = ask(store, profile)
    assert twice.rows[0].time.value > once.rows[0].time.value
    spans = [r.rows[0].time.high / r.rows[0].time.low for r in (once, twice)]
    assert spans[1] < spans[0]
    assert "2 earlier outcomes of this workload: 1.3 times slower" in again.reason


@pytest.mark.parametrize("times", [1000.0, 0.1, 0.001])
def test_an_absurd_outcome_leaves_the_answer_to_the_rule(make_profile: MakeProfile, times: float) -> None:
    profile = make_profile()
    with open_store() as store:
        first, made = ask(store, profile)
        report(store, made, times)
        second, after = ask(store, profile)
    assert after.chosen_by == "rule:analytic"
    assert second.rows[0].time == first.rows[0].time
    assert "the rule answers: the one earlier outcome" in after.reason
    assert "is set aside" in after.reason
    assert after.model is not None
    assert "time" in after.model.estimates, "what the model would have message is kept too"


def test_outcomes_that_contradict_one_another_leave_it_to_the_rule(make_profile: MakeProfile) -> None:
    profile = make_profile()
    with open_store() as store:
        _, made = ask(store, profile)
        report(store, made, 0.15)
        report(store, made, 6.0)
        _, after = ask(store, profile)
    assert after.chosen_by == "rule:analytic"
    assert "2 earlier outcomes contradict one another or the rule (0.15 and 6 times" in after.reason


def test_one_absurd_outcome_does_not_spoil_a_good_one(make_profile: MakeProfile) -> None:
    profile = make_profile()
    with open_store() as store:
        first, made = ask(store, profile)
        report(store, made, 1.3)
        report(store, made, 1000.0)
        second, after = ask(store, profile)
    assert after.chosen_by == "model:corrected"
    assert first.rows[0].time.value < second.rows[0].time.value < 1.3 * first.rows[0].time.value
    assert "1e+03 times the rule's time set aside" in after.reason


def test_another_accelerator_learns_less_and_its_range_stays_wider(make_profile: MakeProfile) -> None:
    profile = make_profile()
    elsewhere = Request(accelerators=("L4",), top=1)
    with open_store() as store:
        before = ask(store, profile, elsewhere)[0].rows[0]
        report(store, ask(store, profile)[1], 1.4)
        same, other = ask(store, profile)[0].rows[0], ask(store, profile, elsewhere)[0].rows[0]
    moved = other.time.value / before.time.value
    assert 1.05 < moved < same.time.value / (same.rule.time.value if same.rule.time else 0.0)
    assert other.time.high / other.time.low > 1.5 * same.time.high / same.time.low
    assert other.time.high / other.time.low < before.time.high / before.time.low


def test_an_outcome_on_an_accelerator_says_nothing_about_cpus(make_profile: MakeProfile) -> None:
    profile = make_profile("mlp_1024x4")
    anywhere = Request(top=2000)
    with open_store() as store:
        report(store, ask(store, profile)[1], 1.4)
        rows = ask(store, profile, anywhere)[0].rows
    hosts = [r for r in rows if r.configuration.offer.accelerator is None]
    assert hosts
    assert all(not r.time_by_model for r in hosts)
    assert "were on accelerators" in hosts[0].time_choice


def test_what_it_cost_tells_how_long_it_took(make_profile: MakeProfile) -> None:
    profile = make_profile()
    with open_store() as store:
        first, made = ask(store, profile)
        report(store, made, 1.0, cost=1.4 * made.rule.estimates["cost"].value)
        second, _ = ask(store, profile)
    assert second.rows[0].time.value > 1.2 * first.rows[0].time.value


def test_other_workloads_and_other_models_of_the_same_name_teach_nothing(make_profile: MakeProfile) -> None:
    profile = make_profile()
    renamed = replace(profile, workload=Workload("another", command=("python", "train.py")))
    namesake = replace(make_profile("vgg16"), workload=profile.workload)
    with open_store() as store:
        report(store, ask(store, profile)[1], 1.4)
        assert len(earlier_runs(store, profile)) == 1
        assert earlier_runs(store, renamed) == ()
        assert earlier_runs(store, namesake) == ()


def test_a_job_shorter_than_the_start_of_its_machines_says_hardly_anything(make_profile: MakeProfile) -> None:
    profile = make_profile()
    short = replace(ON_A10G, top=1)
    with open_store() as store:
        result = recommend(profile, load_offers(), short, work(profile, samples=1000), ())
        made = decision(result)
        store.ledger.record(made)
        store.ledger.record_outcome(Outcome(made.id, 1.0, {"time": 1.5 * made.estimates["time"].value}))
        (run,) = earlier_runs(store, profile)
        after, _ = ask(store, profile)
    assert run.ratio > 2
    rule = after.rows[0].rule.time
    assert rule is not None
    assert after.rows[0].time.value < 1.3 * rule.value
