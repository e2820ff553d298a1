"""The schedule's picture: every piece of work on its line, however many there are."""

from collections.abc import Callable
from xml.etree import ElementTree

from trimtab.partition import Devices, Graph, Plan, Recipe, evaluate
from trimtab.partition.explain import stage_labels
from trimtab.partition.schedule_picture import schedule_picture

MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]
Drawn = Callable[[str, str], list[ElementTree.Element]]


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
    assert "later pieces of work are not drawn" in picture
