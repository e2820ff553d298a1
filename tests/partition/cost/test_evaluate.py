"""A plan's forecast agrees with the formulas, adds up, and refuses plans that cannot be run."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from trimtab.core import BadInputError
from trimtab.partition import Assumptions, Devices, Graph, Plan, Recipe, Stage, evaluate, play
from trimtab.partition.cost.evaluate import cost_of

MakeGraph = Callable[..., Graph]
MakePlan = Callable[..., Plan]
RECIPE = Recipe(32)


@pytest.mark.parametrize("microbatches", [1, 4, 16])
def test_playing_a_plan_takes_about_what_the_formula_says(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices, microbatches: int
) -> None:
    graph = make_graph(blocks=8, width=1024, tokens=256)
    plan = chain_plan(graph, four, microbatches=microbatches, share=32 // microbatches)
    forecast = evaluate(graph, four, RECIPE, plan)
    assert forecast.seconds == pytest.approx(cost_of(graph, four, RECIPE, plan).seconds, rel=0.15)
    assert forecast.low < forecast.seconds < forecast.high


def test_memory_adds_up_and_what_is_left_is_idle(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices
) -> None:
    graph = make_graph(blocks=8, width=1024)
    forecast = evaluate(graph, four, RECIPE, chain_plan(graph, four))
    weights = sum(use.weights for use in forecast.uses)
    assert weights == pytest.approx(4 * graph.parameters.sum())
    assert sum(use.optimizer for use in forecast.uses) == pytest.approx(2 * weights)
    left = four.memory.sum() - sum(use.memory for use in forecast.uses)
    assert forecast.idle == pytest.approx(left)
    assert forecast.fits
    assert forecast.throughput == forecast.batch / forecast.seconds


def test_a_plan_that_is_too_large_says_by_how_much(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices
) -> None:
    graph = make_graph(blocks=8, width=1024)
    plan = chain_plan(graph, four)
    need = max(use.memory for use in evaluate(graph, four, RECIPE, plan).uses)
    small = Devices(tuple(replace(d, memory=need / 2) for d in four.devices), four.bandwidth, four.latency)
    forecast = evaluate(graph, small, RECIPE, plan)
    assert not forecast.fits
    assert forecast.throughput == 0.0
    assert forecast.short == pytest.approx(need - 0.94 * need / 2)


def test_a_device_may_run_several_stages(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    nodes = tuple(range(len(graph)))
    once = Plan((Stage(nodes, ((0,),)),), (8,), 4)
    thrice = Plan((Stage(nodes[:4], ((0,),)), Stage(nodes[4:9], ((1,),)), Stage(nodes[9:], ((0,),))), (8,), 4)
    forecast = evaluate(graph, four, RECIPE, thrice)
    assert {use.device: use.stages for use in forecast.uses} == {0: (0, 2), 1: (1,)}
    assert forecast.seconds > 0.3 * evaluate(graph, four, RECIPE, once).seconds
    assert len(play(graph, four, RECIPE, thrice)) == 2 * 3 * 4


def test_what_a_run_showed_corrects_the_times(
    make_graph: MakeGraph, chain_plan: MakePlan, four: Devices
) -> None:
    graph = make_graph(blocks=8, width=1024)
    plan = chain_plan(graph, four)
    kinds = {device.kind for device in four.devices}
    twice = Assumptions(correction=tuple((kind, 2.0, 2.0) for kind in kinds))
    before, after = evaluate(graph, four, RECIPE, plan), evaluate(graph, four, RECIPE, plan, twice)
    assert after.stage_forward == pytest.approx([2 * each for each in before.stage_forward])


def test_a_plan_that_runs_against_the_graph_is_refused(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph()
    nodes = tuple(range(len(graph)))
    with pytest.raises(BadInputError, match="before that of what it needs"):
        evaluate(graph, four, RECIPE, Plan((Stage(nodes[3:], ((0,),)), Stage(nodes[:3], ((1,),))), (8,), 4))
    with pytest.raises(BadInputError, match="leaves out"):
        evaluate(graph, four, RECIPE, Plan((Stage(nodes[:-1], ((0,),)),), (8,), 4))
