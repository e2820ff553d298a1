"""A plan or placement in rows and sentences."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from trimtab.partition import (
    Devices,
    Graph,
    Plan,
    Recipe,
    SearchSettings,
    Solution,
    devices_of,
    evaluate,
    explained,
    explained_placement,
    solve,
)
from trimtab.partition.explain import (
    PlacedRow,
    StageRow,
    device_rows,
    figures,
    layers_by_stage,
    limits,
    mix,
    ranges,
    stage_rows,
    would_help,
)

MakeGraph = Callable[..., Graph]


def cut_before(graph: Graph, *names: str) -> list[int]:
    places = [graph.names.index(name) for name in names]
    return [sum(node >= place for place in places) for node in range(len(graph))]


def test_whole_modules_are_named_once_and_rows_of_them_as_a_range(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=6)
    layers = layers_by_stage(graph, cut_before(graph, "up_2", "up_5"), 3)
    assert layers == (("net.wte", "net.h.0–1"), ("net.h.2–4",), ("net.h.5", "net.head"))


def test_a_layer_that_is_cut_is_said_to_be_a_part(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=2)
    assert layers_by_stage(graph, cut_before(graph, "down_1"), 2) == (
        ("net.wte", "net.h.0", "net.h.1.up"),
        ("net.h.1.down", "net.h.1 (part)", "net.head"),
    )


def test_one_stage_is_the_whole_model(make_graph: MakeGraph) -> None:
    graph = make_graph()
    assert layers_by_stage(graph, [0] * len(graph), 1) == (("the whole model",),)


@given(st.lists(st.integers(0, 40), unique=True))
def test_ranges_lose_nothing(numbers: list[int]) -> None:
    result = ranges(f"h.{number}" for number in numbers)
    spelled = []
    for item in result:
        first, _, last = item.removeprefix("h.").partition("–")
        spelled += range(int(first), int(last or first) + 1)
    assert spelled == numbers


@pytest.mark.parametrize(
    ("network", "microbatches", "first"),
    [("0.01Gbit", 8, "links twice as fast"), ("4000Gbit", 64, "every T4 twice as fast")],
)
def test_what_holds_a_plan_back_is_named_first(
    make_graph: Callable[..., Graph],
    chain_plan: Callable[..., Plan],
    network: str,
    microbatches: int,
    first: str,
) -> None:
    graph, devices = make_graph(width=2048), devices_of("a100:1,t4:1", network=network)
    plan = chain_plan(graph, devices, microbatches=microbatches)
    recipe = Recipe(plan.batch, "bf16")
    message = would_help(graph, devices, recipe, plan, evaluate(graph, devices, recipe, plan))
    assert message.partition(": ")[2].startswith(f"{first} (1.")


def test_a_single_micro_batch_is_helped_by_more(
    make_graph: Callable[..., Graph], chain_plan: Callable[..., Plan]
) -> None:
    graph, devices = make_graph(width=2048), devices_of("t4:2")
    plan = chain_plan(graph, devices, microbatches=1)
    recipe = Recipe(plan.batch, "bf16")
    message = would_help(graph, devices, recipe, plan, evaluate(graph, devices, recipe, plan))
    assert "twice the batch" in message


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
    message = dict(words.others)
    assert message["slower"].endswith("0.50× of this")
    assert message["larger"] == "does not fit: 1 GiB too much on its fullest device"
    assert message["apart"] == "needs a link that is not there"


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


@pytest.fixture
def result(branches: Graph, pair: Devices) -> Solution:
    settings = SearchSettings(objective="latency", pipeline_only=True)
    return solve(branches, pair, Recipe(8, training=False), settings)


def test_every_layer_has_one_device_and_all_is_compared(result: Solution) -> None:
    words = explained_placement(result)
    assert words is not None
    assert words.summary.startswith("branches side by side on 2 devices: a pass takes")
    assert sorted(row.layers for row in words.rows) == [("left",), ("right",)]
    assert sum(row.parameters for row in words.rows) == result.graph.total_parameters
    assert all(row.used > 0.0 < row.free and 0.5 < row.busy <= 1.0 for row in words.rows)
    figures = dict(words.figures)
    assert figures["in stages"].endswith("1 stage, 1 micro-batch of 8")
    assert figures["one device"].endswith(" on T4:0")


def test_a_device_that_is_too_small_for_all_of_it_is_said(result: Solution) -> None:
    assert result.placement is not None
    small = replace(result, placement=replace(result.placement, alone_fits=False))
    words = explained_placement(small)
    assert words is not None
    assert dict(words.figures)["one device"].endswith("on T4:0, where it does not fit")


def test_a_solution_without_a_placement_has_nothing_to_say(result: Solution) -> None:
    assert explained_placement(replace(result, placement=None)) is None


def test_many_layers_are_counted() -> None:
    row = PlacedRow("T4:0", tuple("abcdef"), 1.0, 1.0, 1.0, 0.5)
    assert row.layers_in_short() == "a, b, c, d and 2 more"
    assert row.layers_in_short(6) == "a, b, c, d, e, f"
