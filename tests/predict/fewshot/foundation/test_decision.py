"""From answers to lines with costs, and to a decision that the ledger can keep."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trimtab.core import Decision, from_plain, to_plain
from trimtab.predict import Guarded, Request, guarded, prediction_decision, prediction_lines
from trimtab.predict.fewshot.foundation import Line

Ask = Callable[..., Request]

GIB_SECOND = 0.0000166667  # dollars
REQUEST = 0.2e-6  # dollars


def _answered(request: Request, **changes: object) -> tuple[Guarded, list[Line], Decision]:
    found = replace(guarded(request.fitted, request.case, request.known), **changes)  # type: ignore[arg-type]
    made = prediction_lines(request, found, request.fitted.coverage)
    return found, made, prediction_decision(request, found, made)


def test_every_configuration_has_a_line_and_what_was_run_keeps_its_time(ask: Ask) -> None:
    request = ask({"memory": "512MB", "time": "240ms"}, {"memory": "1GB", "time": "130ms"})
    found, made, _ = _answered(request)
    assert [line.configuration for line in made] == list(request.places)
    assert [line.known for line in made] == [True, True, False, False, False, False]
    for line, seconds in zip(made[:2], (0.24, 0.13), strict=True):
        assert line.time.low == line.time.value == line.time.high == pytest.approx(seconds)
    for row, line in enumerate(made[2:], 2):
        assert line.time.low <= line.time.value <= line.time.high
        assert line.time.value == found.seconds[row]
        assert (line.rule_seconds, line.model_seconds) == (found.rule[row], found.model[row])
        assert line.time.coverage == request.fitted.coverage


def test_an_invocation_costs_memory_times_time_and_the_request(ask: Ask) -> None:
    _, made, _ = _answered(ask({"memory": "2GB", "time": "1s"}))
    for line in made:
        gib = int(line.configuration.removesuffix("MB")) / 1024
        assert line.cost is not None
        for cost, seconds in zip(
            (line.cost.low, line.cost.value, line.cost.high),
            (line.time.low, line.time.value, line.time.high),
            strict=True,
        ):
            assert cost == pytest.approx(gib * GIB_SECOND * seconds + REQUEST)


def test_what_rule_and_model_would_choose_has_the_fee_in_its_cost(ask: Ask) -> None:
    _, _, decided = _answered(ask({"memory": "512MB", "time": "1ms"}))
    for answer in (decided.rule, decided.model):
        assert answer is not None
        gib = int(str(answer.action["memory"]).removesuffix("MB")) / 1024
        expected = answer.estimates["time"].value * gib * GIB_SECOND + REQUEST
        assert answer.estimates["cost"].value == pytest.approx(expected)


def test_where_nothing_is_charged_the_fastest_is_chosen(ask: Ask) -> None:
    _, made, decided = _answered(ask({"memory": "512MB", "time": "1s"}, environment="openwhisk"))
    assert all(line.cost is None for line in made)
    fastest = min(made, key=lambda line: line.time.value)
    assert decided.action == {"memory": fastest.configuration}
    assert decided.reason.startswith("fastest of 6 in openwhisk; ")
    assert decided.estimates.keys() == {"time"}


def test_a_cluster_costs_all_of_its_machines_for_as_long_as_it_takes(ask: Ask) -> None:
    request = ask(
        {"configuration": "c4.large nodes=10", "time": "20m"},
        {"configuration": "m4.2xlarge nodes=10", "time": "11m"},
        environment="ec2",
    )
    _, made, decided = _answered(request)
    assert len(made) == 69
    hourly = request.case.setting("price_per_hour") * 10
    assert made[0].cost is not None
    assert made[0].cost.value == pytest.approx(hourly[0] / 3)
    assert all(line.cost and line.cost.low <= line.cost.value <= line.cost.high for line in made)
    cheapest = min(made, key=lambda line: line.cost.value if line.cost else np.inf)
    assert decided.action == {"configuration": cheapest.configuration}
    assert decided.reason.startswith("cheapest of 69 in ec2; ")


def test_a_place_without_a_price_makes_time_decide_for_all(ask: Ask) -> None:
    request = ask({"memory": "512MB", "time": "240ms"})
    found, made, _ = _answered(request)
    mixed = [replace(line, cost=None) if number == 3 else line for number, line in enumerate(made)]
    decided = prediction_decision(request, found, mixed)
    assert decided.action == {"memory": min(made, key=lambda line: line.time.value).configuration}
    assert decided.reason.startswith("fastest")


@pytest.mark.parametrize("chosen", ["model", "rule"])
def test_rule_and_model_each_say_what_they_would_do(ask: Ask, chosen: str) -> None:
    request = ask({"memory": "512MB", "time": "1s"}, at=("1GB", "2GB"))
    found, _, decided = _answered(
        request,
        chosen_by=chosen,
        rule_name="CPU share",
        model=np.array([1.0, 0.1, 0.2]),
        rule=np.array([1.0, 0.9, 0.01]),
        low=np.array([0.9, 0.05, 0.005]),
        high=np.array([1.1, 1.0, 0.3]),
    )
    assert decided.model is not None
    assert decided.rule.who == "rule:CPU share"
    assert decided.rule.action == {"memory": "2048MB", "seconds": 0.01}
    assert decided.model.action == {"memory": "1024MB", "seconds": 0.1}
    answer = decided.model if chosen == "model" else decided.rule
    assert decided.chosen_by == answer.who
    assert decided.action == {"memory": answer.action["memory"]}
    assert decided.estimates == answer.estimates
    assert found.reason in decided.reason
    for each in (decided.rule, decided.model):
        assert each.estimates["time"].value == each.action["seconds"]
        assert each.estimates["cost"].unit == "$"


def test_the_others_are_alternatives_and_all_of_it_survives_json(ask: Ask) -> None:
    _, made, decided = _answered(ask(application="thumbnails"))
    assert decided.kind == "predict"
    assert decided.subject == "thumbnails"
    places = [decided.action["memory"], *(other.action["memory"] for other in decided.alternatives)]
    assert sorted(map(str, places)) == sorted(line.configuration for line in made)
    text = json.dumps(to_plain(decided), allow_nan=False)
    assert "cpus=" not in text
    assert from_plain(Decision, json.loads(text)) == decided
