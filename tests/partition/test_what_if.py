"""Which change would help is found by trying it."""

from collections.abc import Callable

import pytest

from trimtab.partition import Graph, Plan, Recipe, devices_of, evaluate
from trimtab.partition.what_if import would_help


@pytest.mark.parametrize(
    ("network", "microbatches", "first"),
    [("0.01Gbit", 8, "links twice as fast"), ("4000Gbit", 64, "every T4 twice as fast")],
)
def test_what_holds_a_plan_back_is_named_first(
    make_graph: Callable[..., Graph],
    chain_plan: Callable[..., Plan],
    network: str,
    microbatches: int,
    first: str,
) -> None:
    graph, devices = make_graph(width=2048), devices_of("a100:1,t4:1", network=network)
    plan = chain_plan(graph, devices, microbatches=microbatches)
    recipe = Recipe(plan.batch, "bf16")
    said = would_help(graph, devices, recipe, plan, evaluate(graph, devices, recipe, plan))
    assert said.startswith(f"what would help most, in samples per second: {first} (1.")


def test_a_single_micro_batch_is_helped_by_more(
    make_graph: Callable[..., Graph], chain_plan: Callable[..., Plan]
) -> None:
    graph, devices = make_graph(width=2048), devices_of("t4:2")
    plan = chain_plan(graph, devices, microbatches=1)
    recipe = Recipe(plan.batch, "bf16")
    said = would_help(graph, devices, recipe, plan, evaluate(graph, devices, recipe, plan))
    assert "twice the batch, in twice as many micro-batches (1." in said
