"""What is kept of a question and its outcomes, and the case it makes."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from trimtab.core import BadInputError, Decision, Outcome
from trimtab.predict import Foundation, catch_up, compared, measured_in, note_outcome, quantity_at, remember
from trimtab.predict.fewshot.outcomes import Example, examples, requests_in
from trimtab.predict.fewshot.prediction import guarded, prediction_decision, prediction_lines
from trimtab.predict.fewshot.request import PredictionRequest
from trimtab.store import Store, open_store

Ask = Callable[..., PredictionRequest]


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store() as opened:
        yield opened


def decided(store: Store, request: PredictionRequest) -> Decision:
    result = guarded(request.fitted, request.case, request.known)
    made = prediction_decision(request, result, prediction_lines(request, result, 0.9), ())
    store.ledger.record(made)
    remember(store, request, result, made)
    return made


def happened(store: Store, decision: Decision, at: str, seconds: float, recorded: float = 1.0) -> Outcome:
    outcome = Outcome(decision.id, recorded, {quantity_at(decision, at): seconds})
    store.ledger.record_outcome(outcome)
    return outcome


def learned(store: Store, foundation: Foundation) -> list[Example]:
    events = catch_up(store)
    result = examples(requests_in(events), measured_in(events), foundation)
    return [example for some in result.values() for example in some]


def test_a_request_comes_back_as_it_was_asked(ask: Ask, store: Store) -> None:
    request = ask(application="thumbnails", data="photos", at=("768MB", "1GB"))
    made = decided(store, request)
    (asked,) = requests_in(catch_up(store))
    assert (asked.decision, asked.application, asked.data) == (made.id, "thumbnails", "photos")
    assert (asked.corpus, asked.environment) == ("functions", "lambda")
    assert list(asked.places) == ["512MB", "768MB", "1024MB"]
    assert list(asked.strange) == [asked.places["768MB"]]
    (run,) = asked.runs
    assert run.seconds == pytest.approx(0.24)
    assert run.metrics["cpu_user"] == pytest.approx(0.25)


def test_an_outcome_joins_the_runs_that_were_known(ask: Ask, store: Store, shipped: Foundation) -> None:
    request = ask(at=("768MB", "1GB"))
    made = decided(store, request)
    note_outcome(store, made, happened(store, made, "768MB", 0.2))
    (example,) = learned(store, shipped)
    assert example.case.configurations == (request.case.configurations[0], request.case.configurations[1])
    np.testing.assert_allclose(example.case.seconds, [0.24, 0.2])
    np.testing.assert_allclose(example.case.settings, request.case.settings[:2], rtol=1e-6)
    np.testing.assert_allclose(example.case.metrics[0], request.case.metrics[0])
    ((known, target),) = example.tests
    assert (known.tolist(), target) == ([0], 1)


def test_outcomes_that_were_only_put_into_the_ledger_are_found_once(
    ask: Ask, store: Store, shipped: Foundation
) -> None:
    made = decided(store, ask(at=("1GB",)))
    happened(store, made, "1024MB", 0.15)
    assert len(learned(store, shipped)) == len(learned(store, shipped)) == 1
    assert len(measured_in(catch_up(store))) == 1


def test_questions_about_one_application_are_one_example(ask: Ask, store: Store, shipped: Foundation) -> None:
    for at, seconds in (("1024MB", 0.15), ("2048MB", 0.1)):
        happened(store, decided(store, ask(at=(at,), application="one")), at, seconds)
    happened(store, decided(store, ask(at=("1GB",), application="other")), "1024MB", 0.2)
    happened(
        store, decided(store, ask(at=("1GB",), application="one", environment="openwhisk")), "1024MB", 0.3
    )
    decided(store, ask(application="never heard of again"))
    sizes = {(item.case.name, item.case.environment): len(item.case) for item in learned(store, shipped)}
    assert sizes == {("one", "lambda"): 3, ("other", "lambda"): 2, ("one", "openwhisk"): 2}


def test_times_of_one_place_are_averaged_unless_the_newest_contradicts(
    ask: Ask, store: Store, shipped: Foundation
) -> None:
    made = decided(store, ask(at=("1GB",)))
    for recorded, seconds in enumerate((0.1, 0.4), 1):
        happened(store, made, "1024MB", seconds, float(recorded))
    assert learned(store, shipped)[0].case.seconds[1] == pytest.approx(0.4)
    happened(store, made, "1024MB", 0.36, 3.0)
    assert learned(store, shipped)[0].case.seconds[1] == pytest.approx((0.4 * 0.36) ** 0.5)


def test_a_slip_of_the_pen_is_not_learned_from(ask: Ask, store: Store, shipped: Foundation) -> None:
    made = decided(store, ask(at=("1GB",)))
    happened(store, made, "1024MB", 240.0)
    assert learned(store, shipped) == []


def test_the_time_at_another_place_is_compared_with_what_was_predicted_there(ask: Ask, store: Store) -> None:
    made = decided(store, ask())
    other = next(answer for answer in made.alternatives if answer.action["memory"] == "2048MB")
    outcome = happened(store, made, "2048MB", other.estimates["time"].value)
    (comparison,) = compared(made, outcome)
    assert comparison.quantity == "time at 2048MB"
    assert comparison.error == pytest.approx(0)
    assert quantity_at(made, str(made.action["memory"])) == "time"
    with pytest.raises(BadInputError, match='"nowhere"'):
        quantity_at(made, "nowhere")


def test_other_decisions_are_not_learned_from(ask: Ask, store: Store) -> None:
    made = replace(decided(store, ask()), kind="recommend")
    assert note_outcome(store, made, Outcome(made.id, 1.0, {"time": 1.0})) is None
    with pytest.raises(BadInputError, match=made.id):
        quantity_at(made, "1024MB")
