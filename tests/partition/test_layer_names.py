"""Which layers a stage has, in few words."""

from collections.abc import Callable

from hypothesis import given, strategies as st

from trimtab.partition import Graph
from trimtab.partition.layer_names import layers_by_stage, ranges

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
    found = ranges(f"h.{number}" for number in numbers)
    spelled = []
    for each in found:
        first, _, last = each.removeprefix("h.").partition("–")
        spelled += range(int(first), int(last or first) + 1)
    assert spelled == numbers
