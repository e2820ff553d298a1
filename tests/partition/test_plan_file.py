"""Plans as JSON."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.partition import Devices, Recipe, evaluate, plan_json, read_plan


@pytest.fixture
def document(make_graph: Any, even_plan: Any, four: Devices) -> dict[str, Any]:
    graph = make_graph()
    plan = even_plan(graph, 2, shares=(3, 1))
    return json.loads(plan_json(plan, graph, four, Recipe(8), target="model.py:build"))


def test_a_plan_comes_back_as_it_was(make_graph: Any, even_plan: Any, four: Devices) -> None:
    graph = make_graph(skip=True)
    plan = even_plan(graph, 2, shares=(3, 1), schedule="gpipe", sharding="optimizer", recompute=True)
    recipe = Recipe(8, precision="bf16", optimizer="momentum")
    forecast = evaluate(graph, four, recipe, plan)
    read = read_plan(plan_json(plan, graph, four, recipe, forecast, "model.py:build"))
    assert (read.plan, read.recipe, read.forecast) == (plan, recipe, forecast)
    assert (read.model, read.target, read.operations) == (graph.name, "model.py:build", graph.names)
    assert read.devices.devices == four.devices
    np.testing.assert_array_equal(read.devices.bandwidth, four.bandwidth)
    np.testing.assert_array_equal(read.devices.latency, four.latency)


def test_numbers_that_json_has_not_come_back_too(make_graph: Any, even_plan: Any, four: Devices) -> None:
    graph = make_graph()
    plan = even_plan(graph, 1)
    endless = replace(evaluate(graph, four, Recipe(4), plan), seconds=float("inf"))
    text = plan_json(plan, graph, four, Recipe(4), endless)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    forecast = read_plan(text).forecast
    assert forecast is not None
    assert forecast.seconds == float("inf")


def test_a_person_can_read_which_modules_run_where(document: dict[str, Any]) -> None:
    assert document["stages"][0]["devices"] == [[0], [1]]
    assert document["stages"][0]["modules"][1] == "net.wte"
    assert "head" in document["stages"][1]["nodes"]


Damage = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.pop("shares"), "shares is missing"),
        (lambda d: d.update(format="plan 9"), 'its "format" must be'),
        (lambda d: d.update(schedule="zigzag"), "schedule is 'zigzag'"),
        (lambda d: d.update(sharding="some"), "sharding is 'some'"),
        (lambda d: d.update(microbatches=0), "microbatches is 0"),
        (lambda d: d.update(microbatches="many"), "microbatches is 'many'"),
        (lambda d: d["stages"][0]["nodes"].append("nothing"), 'no operation called "nothing"'),
        (lambda d: d["stages"][0]["nodes"].pop(), "every operation in exactly one stage"),
        (lambda d: d["stages"][0].update(devices=[[0], [9]]), "no device 9"),
        (lambda d: d["stages"][0].update(devices=[[0]]), "stage 0 must have 2 replicas"),
        (lambda d: d["recipe"].update(batch=0), "0 samples"),
        (lambda d: d["recipe"].update(colour="red"), "colour"),
    ],
)
def test_a_damaged_plan_is_refused_in_one_sentence(
    document: dict[str, Any], damage: Damage, message: str
) -> None:
    damage(document)
    with pytest.raises(BadInputError) as caught:
        read_plan(json.dumps(document), "plan.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"plan.json"):
        read_plan("{", "plan.json")
    with pytest.raises(BadInputError, match="format"):
        read_plan("[]")
