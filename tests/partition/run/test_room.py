"""A run needs room on this machine."""

from dataclasses import replace
from typing import Any

import pytest

from trimtab.core import BadInputError
from trimtab.partition import Recipe, RunSettings, run_plan


def test_a_model_that_is_too_large_for_this_machine_is_not_even_built(
    make_graph: Any, even_plan: Any
) -> None:
    graph = make_graph()
    huge = replace(graph, parameters=graph.parameters * 1e9)
    with pytest.raises(BadInputError, match=r"takes at least .* are free; export the plan"):
        run_plan("nowhere.py:build", huge, even_plan(huge, 2), Recipe(4), RunSettings())


def test_so_are_more_processes_than_memory_is_for(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    with pytest.raises(BadInputError, match="in 2000 processes here takes"):
        run_plan("nowhere.py:build", graph, even_plan(graph, 1, shares=(1,) * 2000), Recipe(4000))
