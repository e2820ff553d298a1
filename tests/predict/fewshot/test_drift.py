"""Drift: quiet while nothing changes, loud soon after something does, and never twice about the same."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.catalog import OfferTable, load_offers
from trimtab.core import Decision, Estimate, Offer, to_plain
from trimtab.predict import DriftFinding, Foundation, drift_after, raise_events, remember
from trimtab.predict.fewshot.drift import (
    LIMIT,
    alarms,
    bias_drift,
    coverage_drift,
    hardware_drift,
    input_drift,
    load_drift,
    outcome_drift,
    price_drift,
    rank_bets,
    rate_bets,
    usual_unlikeness,
)
from trimtab.predict.fewshot.outcomes import OutcomeRecord, RequestRecord, requests_in
from trimtab.predict.fewshot.prediction import guarded, prediction_decision, prediction_lines
from trimtab.predict.fewshot.request import PredictionRequest
from trimtab.store import Event, Store, open_store

Ask = Callable[..., PredictionRequest]
Outcomes = list[OutcomeRecord]


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store() as opened:
        yield opened


def stream(seed: int, count: int, shift_at: int = 10**6, spread: float = 0.15, one: bool = False) -> Outcomes:
    """Outcomes as ranges of 90 % promise them, 1.5 times slower from some point on."""
    random = np.random.default_rng(seed)
    result = []
    for number in range(count):
        expected = 1.0 if one else float(np.exp(random.normal()))
        slower = 1.5 if number >= shift_at else 1.0
        half = math.exp(1.645 * spread)
        result.append(
            OutcomeRecord(
                decision=f"d{number}",
                application="one" if one else f"app{number}",
                place="512MB",
                decided=float(number),
                recorded=float(number),
                seconds=expected * slower * float(np.exp(spread * random.normal())),
                predicted=Estimate(expected * 0.97, expected / half, expected * half, 0.9, "s"),
            )
        )
    return result


def found_at(findings: list[DriftFinding]) -> float:
    """The number of the outcome at which the first finding came."""
    return min((int(item.evidence[-1].split()[0][1:]) for item in findings), default=math.inf)


@pytest.mark.parametrize(
    ("look", "one"),
    [(coverage_drift, False), (bias_drift, False), (load_drift, True)],
    ids=["accuracy", "bias", "load"],
)
def test_false_alarms_stay_at_the_stated_level(
    look: Callable[[Outcomes], list[DriftFinding]], one: bool
) -> None:
    streams, length = 100, 100
    alarmed = sum(bool(look(stream(seed, length, one=one))) for seed in range(streams))
    assert alarmed / streams <= length / LIMIT


@pytest.mark.parametrize(
    ("look", "one", "before", "within"),
    [
        (coverage_drift, False, 30, 10),
        (bias_drift, False, 30, 25),
        (load_drift, True, 10, 20),
        (load_drift, True, 20, 10),
    ],
)
def test_half_as_slow_again_is_found_within_the_stated_number_of_outcomes(
    look: Callable[[Outcomes], list[DriftFinding]], one: bool, before: int, within: int
) -> None:
    spread = 0.1 if one else 0.15
    delays = [found_at(look(stream(seed, before + 40, before, spread, one))) - before for seed in range(20)]
    assert sum(0 <= delay < within for delay in delays) >= 18


def test_one_application_that_fits_badly_is_not_taken_for_all() -> None:
    odd = [replace(item, application="odd", seconds=item.seconds * 5) for item in stream(0, 40)]
    assert coverage_drift(odd) == bias_drift(odd) == []


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.floats(0.01, 0.9))
def test_without_a_change_every_bet_is_fair(count: int, rate: float) -> None:
    ranks = np.mean([rank_bets(rank, count) for rank in range(1, count + 1)], axis=0)
    np.testing.assert_allclose(ranks, 1.0)
    happened, not_happened = rate_bets([True, False], rate)
    np.testing.assert_allclose(rate * happened + (1 - rate) * not_happened, 1.0)


def test_after_an_alarm_it_begins_anew() -> None:
    first, second = alarms(rate_bets([False] * 20 + [True] * 12, 0.1))[:2]
    assert first.start == 20
    assert second.start == first.stop


def noted(store: Store, outcomes: Outcomes) -> int:
    return [
        store.events.append("outcome", item.application, to_plain(item), item.recorded) for item in outcomes
    ][-1]


def test_a_finding_is_one_event_however_often_it_is_seen(store: Store) -> None:
    outcomes = stream(1, 40, 20)
    shown = [drift_after(store, noted(store, [item]), -math.inf, item.recorded) for item in outcomes]
    events = [event for event in store.events.since(0) if event.kind == "drift"]
    assert len(events) == sum(map(len, shown)) >= 1
    first = events[0]
    assert (first.subject, first.detail["name"]) == ("all predictions", "accuracy")
    assert first.detail["numbers"]["held"] < first.detail["numbers"]["outcomes"]
    assert "lay within the stated 90% ranges" in first.detail["sentence"]
    everything = store.events.since(0)
    assert raise_events(store, everything, outcome_drift(everything, -math.inf), 99.0) == []


def test_outcomes_of_an_earlier_version_do_not_count(store: Store) -> None:
    noted(store, stream(1, 40, 20))
    events = store.events.since(0)
    assert outcome_drift(events, 0.0)
    assert outcome_drift(events, 40.0) == []


def remembered(store: Store, request: PredictionRequest) -> RequestRecord:
    result = guarded(request.fitted, request.case, request.known)
    made = prediction_decision(request, result, prediction_lines(request, result, 0.9), ())
    remember(store, request, result, made)
    return requests_in(store.events.since(0))[-1]


def test_requests_unlike_what_was_learned_from_are_noticed(
    ask: Ask, store: Store, shipped: Foundation
) -> None:
    asked = remembered(store, ask())
    usual = usual_unlikeness("functions", shipped.predictors["functions"], shipped)
    assert 0 < usual < 4
    alike, unlike = (
        [replace(asked, application=f"{far} {n}", decision=f"{far} {n}", unlike=far) for n in range(8)]
        for far in (usual / 2, usual * 2)
    )
    assert input_drift(alike, shipped) == []
    finding = input_drift([*alike, *unlike], shipped)[0]
    assert (finding.name, finding.subject) == ("input", "functions")
    assert set(finding.evidence) <= {item.decision for item in unlike}


def test_a_size_beyond_all_that_was_learned_from_is_noticed(
    ask: Ask, store: Store, shipped: Foundation
) -> None:
    within = remembered(store, ask(at=("768MB",)))
    beyond = remembered(store, ask(at=("8GB",)))
    assert hardware_drift([within], shipped) == []
    (finding,) = hardware_drift([within, beyond, beyond], shipped)
    assert finding.sentence.startswith("8192MB in lambda")
    assert finding.numbers["asked"] == pytest.approx(2**33)


def test_prices_are_compared_with_those_of_now(
    ask: Ask, store: Store, shipped: Foundation, make_offer: Callable[..., Offer]
) -> None:
    asked = remembered(store, ask({"configuration": "c4.large nodes=10", "time": "20m"}, environment="ec2"))
    hourly = {"c4.large": 0.1, "m4.large": 0.2}
    offers = OfferTable.from_offers(
        make_offer(
            instance=name, price=price / 3600, accelerator=None, accelerators=0, price_date=date(2026, 1, 1)
        )
        for name, price in hourly.items()
    )
    (finding,) = price_drift([asked], [], shipped, offers)
    assert finding.subject == "aws us-east-1 m4.large"
    assert finding.numbers == pytest.approx({"then": 0.1, "now": 0.2})
    known = load_offers()
    offer = known[0]
    action = {
        "cloud": offer.cloud, "region": offer.region, "instance": offer.instance, "spot": False,
        "nodes": 2, "price_per_second": offer.price * 2 * 0.8,
    }  # fmt: skip
    recommended = replace(a_decision(store, ask()), action=action)
    (finding,) = price_drift([], [recommended], shipped, known)
    assert finding.numbers["now"] / finding.numbers["then"] == pytest.approx(1.25)


def test_list_prices_of_an_earlier_trimtab_are_noticed(ask: Ask, store: Store, shipped: Foundation) -> None:
    asked = remembered(store, ask())
    offers = load_offers()
    assert price_drift([asked], [], shipped, offers) == []
    dearer = replace(asked, list_prices={**asked.list_prices, "GiB-second": 0.00002})
    (finding,) = price_drift([dearer, dearer], [], shipped, offers)
    assert (finding.name, finding.subject) == ("price", "lambda")


def a_decision(store: Store, request: PredictionRequest) -> Decision:
    result = guarded(request.fitted, request.case, request.known)
    return prediction_decision(request, result, prediction_lines(request, result, 0.9), ())


def test_what_another_version_wrote_is_passed_over() -> None:
    event = Event(1, 0.0, "outcome", "x", {"something": "else"})
    assert outcome_drift([event], -math.inf) == []
