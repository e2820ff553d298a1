"""What a plan does, in words: every number is one of the forecast."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from trimtab.partition import Devices, Graph, Plan, Recipe, Solution, devices_of, evaluate, explained
from trimtab.partition.explain import StageRow, device_rows, figures, limits, mix, stage_rows

MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]
RECIPE = Recipe(8, "bf16")


def test_a_plan_is_one_line(make_graph: MakeGraph, four: Devices, chain_plan: MakePlan) -> None:
    plan = chain_plan(make_graph(), four)
    assert mix(plan) == "4 stages, 4 micro-batches of 2, 1f1b"
    one = replace(plan, stages=plan.stages[:1], microbatches=1, recompute=True)
    assert mix(one) == "1 stage, 1 micro-batch of 2, activations computed again"
    unequal = replace(plan, shares=(3, 1), sharding="optimizer")
    assert mix(unequal).startswith("4 stages × 2 replicas, 4 micro-batches of 3+1, 1f1b, optimizer state")


def test_rows_add_up_to_the_model(make_graph: MakeGraph, four: Devices, chain_plan: MakePlan) -> None:
    graph = make_graph()
    plan = chain_plan(graph, four)
    forecast = evaluate(graph, four, RECIPE, plan)
    rows = stage_rows(graph, four, plan, forecast)
    tied = graph.ties[0].parameters  # held by the first and the last stage
    assert sum(row.parameters for row in rows) == pytest.approx(graph.total_parameters + tied)
    assert [row.devices for row in rows] == ["A100:0", "A100:1", "T4:0", "T4:1"]
    assert all(0 < row.busy < 1 for row in rows)
    for row in device_rows(four, forecast):
        assert 0 < row.used < row.used + row.free < 40e9


def test_devices_that_do_the_same_share_a_row(make_graph: MakeGraph, chain_plan: MakePlan) -> None:
    graph, devices = make_graph(), devices_of("t4:4")
    plan = chain_plan(graph, devices_of("t4:1"))
    stage = replace(plan.stages[0], ranks=((0,), (1,), (2,), (3,)))
    plan = replace(plan, stages=(stage,), shares=(1, 1, 1, 1), microbatches=2)
    rows = device_rows(devices, evaluate(graph, devices, RECIPE, plan))
    assert [(row.names, row.stages) for row in rows] == [("T4:0–3", "1")]


def test_the_slowest_part_is_named(make_graph: MakeGraph, chain_plan: MakePlan) -> None:
    graph = make_graph(width=2048)
    slow_links = devices_of("a100:1,t4:1", network="0.01Gbit")
    plan = chain_plan(graph, slow_links)
    recipe = replace(RECIPE, batch=plan.batch)
    first = limits(slow_links, plan, evaluate(graph, slow_links, recipe, plan))[0]
    assert first.startswith("the link from stage 1 (A100:0) to stage 2 (T4:0) sets the pace")
    fast_links = devices_of("a100:1,t4:1", network="4000Gbit")
    first = limits(fast_links, plan, evaluate(graph, fast_links, recipe, plan))[0]
    assert first.startswith("stage 2 (T4:0) sets the pace")


def test_other_plans_come_with_their_numbers(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan
) -> None:
    graph = make_graph()
    plan = chain_plan(graph, four)
    forecast = evaluate(graph, four, RECIPE, plan)
    others = (
        ("slower", replace(forecast, seconds=2 * forecast.seconds)),
        ("larger", replace(forecast, fits=False, short=2.0**30)),
        ("apart", replace(forecast, fits=False, short=0.0)),
    )
    solution = Solution(plan, forecast, graph, four, RECIPE, "ours", ("because",), others, 0.1)
    words = explained(solution)
    assert words.reasons[0] == "because"
    said = dict(words.others)
    assert said["slower"].endswith("0.50× of this")
    assert said["larger"] == "does not fit: 1 GiB too much on its fullest device"
    assert said["apart"] == "needs a link that is not there"


def test_many_layers_are_shown_by_their_ends() -> None:
    row = StageRow(1, ("a", "b", "h.0–3", "i.0–1", "c"), "T4:0", 1.0, 1.0, 1.0, 0.5)
    assert row.layers_in_short() == "a … h.0–3 … c"
    assert row.layers_in_short(5) == "a, b, h.0–3, i.0–1, c"
    assert replace(row, layers=tuple("abcd")).layers_in_short() == "a … d"


def test_a_plan_without_prices_says_so(make_graph: MakeGraph, chain_plan: MakePlan) -> None:
    graph, devices = make_graph(), devices_of("cpu:2x1")
    plan = chain_plan(graph, devices)
    named = dict(figures(evaluate(graph, devices, Recipe(8), plan), training=True))
    assert named["cost"].startswith("unknown")
    assert "for 8 samples" in named["a step"]
