"""What a step should take here follows what was measured here."""

from typing import Any

import pytest

from trimtab.partition import Link, Recipe, RunReport, predicted_here

FAST = Link(1e12, 0.0, {})


def report(forward: float, backward: float) -> RunReport:
    return RunReport((), (), 0.0, 0.0, 1.0, (1.0,), (), forward, backward, 1, True, ())


def test_twice_the_whole_models_time_is_nearly_twice_the_step(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    plan = even_plan(graph, 2, microbatches=4)
    recipe = Recipe(plan.batch, optimizer="sgd")
    once = predicted_here(graph, plan, recipe, report(1.0, 2.0), FAST)
    twice = predicted_here(graph, plan, recipe, report(2.0, 4.0), FAST)
    assert 4 * 3.0 / 2 < once < 4 * 3.0 + 3.0
    assert twice == pytest.approx(2 * once, rel=0.01)


def test_a_slow_link_is_waited_for(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    plan = even_plan(graph, 2, microbatches=4)
    recipe = Recipe(plan.batch)
    fast = predicted_here(graph, plan, recipe, report(1e-3, 2e-3), FAST)
    assert predicted_here(graph, plan, recipe, report(1e-3, 2e-3), Link(1e12, 0.5, {})) > fast + 0.5


def test_a_plan_for_gpus_is_predicted_as_it_runs_here(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    plan = even_plan(graph, 1, order=(3,))
    half, full = Recipe(plan.batch, "bf16"), Recipe(plan.batch)
    assert predicted_here(graph, plan, half, report(1.0, 2.0), FAST) == pytest.approx(
        predicted_here(graph, plan, full, report(1.0, 2.0), FAST)
    )
