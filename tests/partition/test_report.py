"""The page people look at, in a real browser."""

from collections.abc import Callable
from dataclasses import replace

from browser import Browser

from trimtab.partition import (
    Devices,
    Graph,
    Plan,
    Recipe,
    SearchSettings,
    Solution,
    evaluate,
    html_report,
    solve,
)

MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]


def solution(graph: Graph, devices: Devices, plan: Plan) -> Solution:
    recipe = Recipe(plan.batch, "bf16")
    forecast = evaluate(graph, devices, recipe, plan)
    lacking = replace(forecast, fits=False, short=1e9)
    return Solution(
        plan,
        forecast,
        graph,
        devices,
        recipe,
        "ours",
        ("because <b>so</b>",),
        (("one device", lacking),),
        0.2,
    )


def test_the_page_shows_graph_schedule_memory_and_tables_offline(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan, browser: Browser
) -> None:
    graph = make_graph(skip=True)
    plan = chain_plan(graph, four, microbatches=4)
    page = html_report(solution(graph, four, plan), "abc123", ("10Gbit between machines",))
    shown = browser.show(page, script=False)
    assert browser.problems == []
    pictures = shown.locator("figure svg")
    assert [pictures.nth(n).get_attribute("aria-label") for n in range(pictures.count())] == [
        "The model's graph, by stage",
        "The schedule of one step",
        "Memory of each device",
    ]
    for n in range(3):
        area = pictures.nth(n).bounding_box()
        assert area is not None
        assert area["width"] > 900
        assert area["height"] > 80
    assert shown.locator("rect.forward").count() == 16
    assert shown.locator("rect.backward").count() == 16
    assert shown.locator("rect.node").count() > 12
    first = shown.locator("rect.node").first.bounding_box()
    second = shown.locator("rect.node").nth(1).bounding_box()
    assert first is not None
    assert second is not None
    assert first["x"] + first["width"] <= second["x"]
    assert shown.get_by_text("because <b>so</b>").count() == 1
    assert shown.locator("table").count() == 4


def test_a_name_with_markup_in_it_is_shown_not_run(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan
) -> None:
    graph = replace(make_graph(), name="<script>alert(1)</script>")
    page = html_report(solution(graph, four, chain_plan(graph, four)), "abc123")
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_branches_side_by_side_come_first(branches: Graph, pair: Devices, browser: Browser) -> None:
    result = solve(
        branches,
        pair,
        Recipe(8, training=False),
        SearchSettings(objective="latency", pipeline_only=True),
    )
    shown = browser.show(html_report(result, "abc123"), script=False)
    assert browser.problems == []
    first = shown.locator("figure svg").first
    assert first.get_attribute("aria-label") == "The model's graph, by device"
    assert first.locator("rect.device").count() == 2
    assert shown.locator("h2").first.inner_text() == "Branches side by side"
    assert shown.get_by_text("run at the same time").count() == 1
