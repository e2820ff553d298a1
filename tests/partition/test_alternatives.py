"""What people would try first stands beside the plan, each with its number."""

from collections.abc import Callable

from trimtab.partition import Devices, Graph, Recipe, SearchSettings, devices_of, plan_by, with_usual_plans

MakeGraph = Callable[..., Graph]


def test_usual_plans_are_named_and_none_is_better(make_graph: MakeGraph, four: Devices) -> None:
    graph, settings = make_graph(width=1024), SearchSettings()
    found = with_usual_plans(plan_by("ours", graph, four, Recipe(16, "bf16"), settings), settings)
    others = dict(found.alternatives)
    assert {
        "all of it on every device (data parallel)",
        "equal parts, one after the other",
        "the best single device",
        "only 2 A100",
        "only 2 T4",
    } <= set(others)
    for name, other in others.items():
        assert other.throughput <= found.forecast.throughput * 1.001, name


def test_one_device_has_no_alternatives(make_graph: MakeGraph) -> None:
    settings = SearchSettings()
    alone = plan_by("ours", make_graph(), devices_of("t4"), Recipe(4), settings)
    assert with_usual_plans(alone, settings) is alone
