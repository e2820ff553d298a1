"""A placement's picture: branches side by side, each device with its colour, all text shown as text."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from trimtab.partition import Devices, Graph, Placement, Recipe, devices_of, place
from trimtab.partition.placement_picture import placement_picture

Drawn = Callable[[str, str], list[ElementTree.Element]]


@pytest.fixture
def placed(branches: Graph, pair: Devices) -> Placement:
    return place(branches, pair, Recipe(8, training=False))


def test_branches_stand_side_by_side_in_the_colours_of_their_devices(placed: Placement, drawn: Drawn) -> None:
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


def test_names_with_markup_in_them_are_shown(placed: Placement) -> None:
    hostile = replace(placed.graph, blocks=("<script>alert(1)</script>",) * len(placed.graph))
    picture = placement_picture(replace(placed, graph=hostile))
    assert "<script>" not in picture
    assert "&lt;script&gt;" in picture
