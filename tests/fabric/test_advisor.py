"""What the fabric is worth: laws of the advice, its ranges, and what it refuses."""

import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, Estimate, NotFoundError, to_plain
from trimtab.core.units import HOUR
from trimtab.fabric import Advice, Assumption, Failures, Question, advise, catalog_price

PRICE = Assumption.given(2.5 / HOUR)
DEVICES = st.integers(8, 50_000)


def question(devices: int = 1024, price: Assumption = PRICE, **other: object) -> Question:
    return Question(devices, price, **other)  # type: ignore[arg-type]


def given_costs(saving: float = 10.0, noticing: float = 60.0, restarting: float = 30.0) -> dict[str, object]:
    return {
        "saving": Assumption.given(saving),
        "noticing": Assumption.given(noticing),
        "restarting": Assumption.given(restarting),
    }


def estimates(advice: Advice) -> list[Estimate]:
    found = [getattr(advice, field.name) for field in fields(advice)]
    for losses in (advice.without, advice.with_fabric):
        found += [losses.between, losses.interval.best, losses.hours, losses.dollars]
    return [each for each in found if isinstance(each, Estimate)]


@given(DEVICES, st.floats(1.1, 4.0))
@settings(max_examples=25, deadline=None)
def test_more_devices_save_more(devices: int, factor: float) -> None:
    fewer, more = (advise(question(n)) for n in (devices, math.ceil(devices * factor)))
    assert more.saved_dollars.value > fewer.saved_dollars.value > 0.0
    assert more.saved_hours.value > fewer.saved_hours.value
    assert more.without.interval.best.value < fewer.without.interval.best.value


@given(DEVICES, st.floats(0.0, 1.0), st.floats(0.1, 100.0), st.floats(0.0, 900.0))
@settings(max_examples=25, deadline=None)
def test_every_number_is_in_its_range_and_the_sums_are_right(
    devices: int, survived: float, saving: float, noticing: float
) -> None:
    try:
        job = question(
            devices, survived=Assumption.given(survived), **given_costs(saving=saving, noticing=noticing)
        )
    except BadInputError:
        return  # so many failures that no job gets anywhere
    advice = advise(job)
    assert all(math.isfinite(number) for each in estimates(advice) for number in (each.low, each.high))
    lost = advice.without.dollars.value - advice.with_fabric.dollars.value
    assert advice.saved_dollars.value == pytest.approx(lost, rel=1e-6, abs=1e-6)
    assert advice.saved_hours.value * HOUR * devices * PRICE.value == pytest.approx(lost, rel=1e-6, abs=1e-6)


def test_a_fabric_that_survives_nothing_saves_nothing() -> None:
    advice = advise(question(survived=Assumption.given(0.0)))
    assert advice.saved_dollars.value == pytest.approx(0.0, abs=1e-6)
    assert advice.with_fabric.interval.best == advice.without.interval.best


def test_the_saving_is_gone_at_the_slowdown_that_is_said() -> None:
    job = question(16_000)
    slowdown = Assumption.given(advise(job).break_even.value)
    assert advise(replace(job, slowdown=slowdown)).saved_dollars.value == pytest.approx(0.0, abs=1e-3)


def test_the_default_counts_are_those_of_the_report() -> None:
    advice = advise(question(16_000))
    assert advice.without.between.value == pytest.approx(54 * 24 * HOUR / 466)
    month = 365.25 / 12 / 54
    assert advice.interruptions.value == pytest.approx(466 * month)
    assert advice.survived.value == pytest.approx(0.9 * 0.101 * 466 * month)
    assert advice.interruptions.low < 240
    assert advice.interruptions.high > 285


def test_small_saves_cost_about_what_every_textbook_says() -> None:
    """To first order an interruption costs half an interval, noticing and restarting; saving costs C / W."""
    advice = advise(question(1024, **given_costs()))
    between, interval = advice.without.between.value, advice.without.interval.used
    share = 10.0 / interval + (interval / 2 + 60.0 + 30.0) / between
    assert advice.without.hours.value == pytest.approx(share * 365.25 / 12 * 24, rel=0.02)


def test_fewer_counted_failures_mean_wider_ranges() -> None:
    costs = given_costs() | {"survived": Assumption.given(0.9), "stall": Assumption.given(0.2)}
    many = Failures(1000.0, 1e6, 1e3, 0.1, 0.0)
    few = Failures(10.0, 1e4, 1e3, 0.1, 0.0)
    wide, narrow = (advise(question(100, failures=seen, **costs)).saved_dollars for seen in (few, many))
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_an_interval_of_ones_own_is_used_and_priced() -> None:
    best = advise(question())
    own = advise(question(interval=1800.0))
    assert own.without.interval.used == own.with_fabric.interval.used == 1800.0
    assert own.without.interval.best == best.without.interval.best
    extra = own.without.dollars.value - best.without.dollars.value
    assert own.used_costs == pytest.approx(extra)
    assert extra > 0.0
    assert best.used_costs == pytest.approx(0.0, abs=1e-6)
    assert best.half_costs > 0.0
    assert best.twice_costs > 0.0


def test_sensitivities_come_with_the_weightiest_first() -> None:
    found = advise(question(16_000)).sensitivities
    swings = [abs(each.at_high - each.at_low) for each in found]
    assert swings == sorted(swings, reverse=True)
    assert {"noticing", "saving", "failures at the edge"} <= {each.name for each in found}
    assert "price" not in {each.name for each in found}  # it was given without a range


def test_the_same_question_has_the_same_answer_in_plain_json() -> None:
    first, second = (json.dumps(to_plain(advise(question())), allow_nan=False) for _ in range(2))
    assert first == second


def test_a_price_of_the_catalog_is_per_device() -> None:
    price = catalog_price("H100")
    assert price.low <= price.value <= price.high
    assert 1.0 / HOUR < price.value < 20.0 / HOUR
    with pytest.raises(NotFoundError):
        catalog_price("no-such-thing")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"devices": 0}, "devices is 0"),
        ({"saving": Assumption.given(-1.0)}, "-1"),
        ({"saving": Assumption.given(0.0)}, "saving"),
        ({"noticing": Assumption(5.0, 6.0, 7.0, "")}, "noticing is 5.*6 to 7"),
        ({"noticing": Assumption.given(math.nan)}, "noticing is nan"),
        ({"survived": Assumption.given(1.2)}, "survived is 1.2"),
        ({"slowdown": Assumption.given(1.0)}, "slowdown"),
        ({"price": Assumption.given(-1.0)}, "-1"),
        ({"failures": Failures(interruptions=0.0)}, "0 interruptions"),
        ({"failures": Failures(seconds=0.0)}, "duration"),
        ({"failures": Failures(network_share=0.9, card_share=0.2)}, "0.9 .*0.2 "),
        (
            {"failures": Failures(network_share=1.0, card_share=0.0), "survived": Assumption.given(1.0)},
            "interruption",
        ),
        ({"interval": 0.0}, "0 s"),
        ({"interval": 1e6}, "between checkpoints"),
        ({"devices": 10**9}, "1000000000 devices"),
    ],
)
def test_nonsense_is_refused(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        question(**wrong)  # type: ignore[arg-type]
