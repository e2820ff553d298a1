"""The picture of memory: bars as long as their bytes."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from trimtab.partition import Devices, Graph, Plan, Recipe, devices_of, evaluate
from trimtab.partition.memory_picture import memory_picture

MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]
Drawn = Callable[[str, str], list[ElementTree.Element]]


def test_bars_are_as_long_as_their_bytes(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan, drawn: Drawn
) -> None:
    graph = make_graph(width=2048)
    plan = chain_plan(graph, four)
    forecast = evaluate(graph, four, Recipe(8), plan)
    picture = memory_picture(forecast, four)
    widths = [float(bar.get("width", 0)) for bar in drawn(picture, "weights")]
    free = [float(bar.get("width", 0)) for bar in drawn(picture, "free")]
    ratio = forecast.uses[0].weights / forecast.uses[3].weights
    assert widths[0] / widths[3] == pytest.approx(ratio, rel=0.02)
    assert len(free) == 4


def test_what_is_too_much_is_marked(make_graph: MakeGraph, chain_plan: MakePlan) -> None:
    graph, small = make_graph(width=8192), devices_of("t4:2")
    forecast = evaluate(graph, small, Recipe(8), chain_plan(graph, small))
    assert re.search(r"T4:\d: [\d.]+ GiB too much", memory_picture(forecast, small))
