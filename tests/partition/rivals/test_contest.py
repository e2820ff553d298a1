"""The best plan of a proposal is the best of all, and one that does not fit reaches nothing."""

import numpy as np
import pytest
from trimtab_bench.partition.random_graphs import FAMILIES, random_graph

from trimtab.partition import RIVALS, Recipe, devices_of
from trimtab.partition.cost.evaluate import evaluate
from trimtab.partition.rivals import reached_by
from trimtab.partition.rivals.stages import plans_of


@pytest.mark.parametrize("family", FAMILIES)
def test_looking_at_promising_plans_first_misses_none(family: str) -> None:
    graph, devices, recipe = random_graph(family, 12, 5), devices_of("v100:1,t4:2", "25Gbit"), Recipe(8)
    for proposal in list(RIVALS["random"](graph, devices, recipe))[:4]:
        all_plans = [evaluate(graph, devices, recipe, plan) for plan in plans_of(graph, proposal, recipe)]
        reached = reached_by([proposal], graph, devices, recipe)
        assert reached.throughput == max(each.throughput for each in all_plans) > 0.0
        assert reached.throughputs == (reached.throughput,)


def test_the_best_proposal_counts() -> None:
    graph, devices, recipe = random_graph("skips", 16, 5), devices_of("v100:1,t4:1"), Recipe(8)
    reached = reached_by(RIVALS["single"](graph, devices, recipe), graph, devices, recipe)
    assert len(reached.throughputs) == 2
    assert reached.throughput == max(reached.throughputs) > min(reached.throughputs) > 0.0
    assert reached.plan is not None
    assert reached.plan.stages[0].ranks == ((0,),)


def test_what_does_not_fit_reaches_nothing() -> None:
    graph, devices, recipe = random_graph("skips", 8, 0), devices_of("t4:1"), Recipe(100_000)
    reached = reached_by([np.zeros(8, dtype=int)], graph, devices, Recipe(99_999))
    assert reached.plan is None
    assert reached.throughput == 0.0
    assert reached_by([], graph, devices, recipe).throughput == 0.0
