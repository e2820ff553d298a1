"""What an advice comes to in the ledger."""

import pytest

from trimtab.core import SimulatedClock
from trimtab.core.units import HOUR
from trimtab.fabric import Assumption, Question, advice_decision, advise

PRICE = Assumption.given(2.5 / HOUR)


def test_the_rule_stands_beside_it_and_loses_more() -> None:
    advice = advise(Question(16_000, PRICE, saving=Assumption.given(60.0)))
    made = advice_decision(advice, SimulatedClock(7.0))
    assert (made.created, made.kind, made.subject) == (7.0, "fabric", "a job on 16000 devices")
    best = round(advice.with_fabric.interval.best.value, 1)
    assert made.action == {"devices": 16_000, "fabric": True, "seconds_between_checkpoints": best}
    assert made.estimates["cost"] == advice.with_fabric.dollars
    without = made.alternatives[0]
    assert without.action["fabric"] is made.rule.action["fabric"] is False
    for quantity in ("time", "cost"):
        chosen, plain, rule = (each.estimates[quantity] for each in (made, without, made.rule))
        assert chosen.value < plain.value < rule.value
        assert rule.low <= rule.value <= rule.high
    assert made.rule.estimates["time"].value == pytest.approx(
        made.rule.estimates["cost"].value / (PRICE.value * 16_000)
    )
    lost = sum(each.value for each in made.contributions)
    assert lost == pytest.approx(made.estimates["time"].value, rel=0.01)


def test_a_fabric_that_slows_every_step_down_is_not_advised() -> None:
    made = advice_decision(advise(Question(1024, PRICE, slowdown=Assumption.given(0.05))))
    assert made.action["fabric"] is False
    assert made.alternatives[0].action["fabric"] is True


def test_with_an_interval_of_its_own_the_rule_is_still_youngs() -> None:
    advice = advise(Question(1024, PRICE, interval=60.0))
    made = advice_decision(advice)
    assert made.action["seconds_between_checkpoints"] == 60.0
    assert made.rule.estimates["cost"].value < made.alternatives[0].estimates["cost"].value
