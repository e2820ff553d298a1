"""Small cases: what is drawn, what is measured, and what the sum of it says."""

from typing import Any

import numpy as np
import pytest
from trimtab_bench.partition.small import FAMILIES, case, random_graph, small_figures, summary


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("nodes", [8, 25, 300])
def test_all_begins_with_one_input_and_ends_in_one_output(family: str, nodes: int) -> None:
    graph = random_graph(family, nodes, seed=1)
    sources, targets, _ = graph.edges
    assert len(graph) == nodes
    assert (sources < targets).all()
    assert set(sources.tolist()) == set(range(nodes - 1))
    assert set(targets.tolist()) == set(range(1, nodes))
    assert (graph.kinds[0], graph.kinds[-1]) == ("input", "output")
    assert (graph.flop[1:-1] > 0).all()
    assert graph.flop[0] == graph.flop[-1] == graph.parameters[0] == 0.0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_graph_and_another_seed_another(family: str) -> None:
    one, again, other = (random_graph(family, 20, seed) for seed in (3, 3, 4))
    assert np.array_equal(one.flop, again.flop)
    assert np.array_equal(one.used, again.used)
    assert not np.array_equal(one.flop, other.flop)


def test_cases_are_the_same_again_and_of_all_sorts() -> None:
    drawn = [case(number, seed=0) for number in range(24)]
    assert {each.kind for each in drawn} == {"equal", "two-tier", "unequal"}
    assert len({each.family for each in drawn}) == 4
    assert {each.tight for each in drawn} == {True, False}
    assert all(8 <= each.nodes <= 40 and 2 <= len(each.problem.rows) <= 4 for each in drawn)
    again = case(5, seed=0)
    assert np.array_equal(again.problem.forward, drawn[5].problem.forward)
    assert np.array_equal(again.problem.capacity, drawn[5].problem.capacity)


def test_a_case_is_solved_both_ways() -> None:
    number = next(n for n in range(100) if case(n, 0).nodes <= 12)
    found = small_figures(number, seed=0)
    assert found["proven"]
    assert found["bound"] <= found["exact"] * (1 + 1e-9)
    assert found["ours"] >= found["bound"] * (1 - 1e-9)
    assert found["took"] > 0.0 < found["exact_took"]


def _found(
    exact: float | None, ours: float | None, bound: float | None, proven: bool = True
) -> dict[str, Any]:
    return {
        "exact": exact,
        "ours": ours,
        "bound": bound,
        "proven": proven,
        "exact_took": 2.0,
        "took": 0.1,
    }


def test_the_summary_counts_what_is_close_and_what_is_unproven() -> None:
    figures = summary(
        [
            _found(1.0, 1.0, 1.0),
            _found(1.0, 1.005, 1.0),
            _found(1.0, 1.02, 1.0),
            _found(1.0, 0.9, 0.8, proven=False),
            _found(None, None, None),
        ]
    )
    assert figures["cases"] == 5
    assert figures["proven"] == 4
    assert figures["nothing_fits"] == 1
    assert figures["within_1pct"] == pytest.approx(0.8)
    assert figures["within_1pct_of_bound"] == pytest.approx(0.6)
    assert figures["worst_gap"] == pytest.approx(0.02)
    assert figures["better_than_unproven"] == 1
    assert figures["speedup_over_milp"] == pytest.approx(20.0)


def test_finding_nothing_where_something_fits_is_never_close() -> None:
    figures = summary([_found(1.0, None, 1.0), _found(1.0, 1.0, 1.0)])
    assert figures["within_1pct"] == 0.5
    assert figures["worst_gap"] == float("inf")
