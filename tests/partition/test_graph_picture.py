"""The graph's picture: every node in a box of its stage, skips in sight, all text shown as text."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

from trimtab.partition import Devices, Graph, Plan
from trimtab.partition.explain import stage_labels
from trimtab.partition.graph_picture import MOST_BOXES, boxed, graph_picture

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
