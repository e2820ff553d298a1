"""A plan as pictures."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from trimtab.partition import Devices, Graph, NodePlacement, Plan, Recipe, devices_of, evaluate, place
from trimtab.partition.explain import stage_labels
from trimtab.partition.pictures import (
    MOST_BOXES,
    MOST_DRAWN,
    boxed,
    graph_picture,
    memory_picture,
    placement_picture,
    schedule_picture,
)

MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]
Drawn = Callable[[str, str], list[ElementTree.Element]]


def test_boxes_stay_few_and_within_their_stage(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=400)
    stage_of = [4 * node // len(graph) for node in range(len(graph))]
    boxes = boxed(graph, stage_of)
    assert 4 <= len(boxes.names) <= MOST_BOXES
    assert all(boxes.stage[box] == stage for box, stage in zip(boxes.of, stage_of, strict=True))


def test_nodes_without_modules_are_boxed_in_rows(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=400)
    plain = replace(graph, blocks=("",) * len(graph))
    assert len(boxed(plain, [0] * len(plain)).names) <= MOST_BOXES


def test_the_graph_shows_every_box_and_the_skip_over_stages(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan, drawn: Drawn
) -> None:
    graph = make_graph(skip=True)
    plan = chain_plan(graph, four)
    picture = graph_picture(graph, plan.stage_of(len(graph)), stage_labels(four, plan))
    stages = [int(box.get("data-stage", -1)) for box in drawn(picture, "node")]
    assert sorted(set(stages)) == [0, 1, 2, 3]
    assert len(stages) == len(graph)
    assert picture.count("stroke-dasharray") == 1  # from the embedding to the join, three stages on
    assert "net.wte → net.join" in picture


def test_names_with_markup_in_them_are_shown(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan
) -> None:
    graph = make_graph()
    hostile = replace(graph, blocks=("<script>alert(1)</script>",) * len(graph))
    plan = chain_plan(graph, four)
    picture = graph_picture(hostile, plan.stage_of(len(graph)), stage_labels(four, plan))
    assert "<script>" not in picture
    assert "&lt;script&gt;" in picture


@pytest.fixture
def placed(branches: Graph, pair: Devices) -> NodePlacement:
    return place(branches, pair, Recipe(8, training=False))


def test_branches_stand_side_by_side_in_the_colours_of_their_devices(
    placed: NodePlacement, drawn: Drawn
) -> None:
    picture = placement_picture(placed)
    boxes, devices = drawn(picture, "node"), drawn(picture, "device")
    assert len(devices) == 2
    assert {box.get("fill") for box in boxes} == {device.get("fill") for device in devices}
    rows: dict[float, list[ElementTree.Element]] = {}
    for box in boxes:
        rows.setdefault(float(box.get("y", 0)), []).append(box)
    branching = [row for row in rows.values() if len(row) == 2]
    assert branching
    assert all(len({box.get("fill") for box in row}) == 2 for row in branching)


def test_boxes_do_not_cover_one_another_however_many_devices(make_graph: Callable[..., Graph]) -> None:
    graph, devices = make_graph(blocks=8), devices_of("t4:9")
    one = place(graph, devices, Recipe(8), seconds=0.0)
    spread = tuple(node % 9 for node in range(len(graph)))
    placed = replace(one, device_of=spread, used=dict.fromkeys(range(9), 1e9))
    root = ElementTree.fromstring(placement_picture(placed))
    boxes = [shape for shape in root.iter() if shape.get("class") == "node"]
    corners = sorted((float(box.get("y", 0)), float(box.get("x", 0))) for box in boxes)
    assert len(set(corners)) == len(boxes) == len(graph)
    assert all(b[0] - a[0] >= 26 or b[1] - a[1] >= 104 for a, b in pairwise(corners))


def test_names_with_markup_are_shown_in_a_placement(placed: NodePlacement) -> None:
    hostile = replace(placed.graph, blocks=("<script>alert(1)</script>",) * len(placed.graph))
    picture = placement_picture(replace(placed, graph=hostile))
    assert "<script>" not in picture
    assert "&lt;script&gt;" in picture


def test_every_micro_batch_is_on_every_line(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan, drawn: Drawn
) -> None:
    graph = make_graph()
    plan = chain_plan(graph, four, microbatches=6, share=1)
    forecast = evaluate(graph, four, Recipe(6), plan)
    picture = schedule_picture(plan, forecast, stage_labels(four, plan), training=True)
    for phase in ("forward", "backward"):
        work = drawn(picture, phase)
        assert len(work) == 4 * 6
        assert {box.get("y") for box in work} == {"8.0", "35.0", "62.0", "89.0"}
        for line in {box.get("y") for box in work}:
            spans = sorted(
                (float(box.get("x", 0)), float(box.get("width", 0))) for box in work if box.get("y") == line
            )
            ends = [x + width for x, width in spans]
            assert all(end <= x + 0.1 for end, (x, _) in zip(ends, spans[1:], strict=False))


def test_a_long_schedule_stays_a_small_picture(
    make_graph: MakeGraph, four: Devices, chain_plan: MakePlan
) -> None:
    graph = make_graph()
    plan = chain_plan(graph, four, microbatches=8192, share=1)
    forecast = evaluate(graph, four, Recipe(8192), plan)
    picture = schedule_picture(plan, forecast, stage_labels(four, plan), training=True)
    assert len(picture) < 2_000_000
    assert f"{8 * 8192 - MOST_DRAWN:,}" in picture


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
