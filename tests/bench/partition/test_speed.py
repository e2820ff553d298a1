"""How long it takes is measured for real: a graph here, a model in a process of its own."""

import pytest
from trimtab_bench.partition.speed import command_figures, solving_seconds

from trimtab.core import TrimtabError


def test_a_random_graph_is_split() -> None:
    found = solving_seconds(60, seed=0, fleet="v100:2,t4:2")
    assert found["seconds"] > 0.0
    assert found["fits"] == 1.0


def test_a_model_is_split_in_a_fresh_process() -> None:
    found = command_figures("vgg16", devices="t4:2")
    assert found["seconds"] > 0.0
    assert 0.05 < found["peak_gib"] < 8.0


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(TrimtabError, match="no_such_model"):
        command_figures("no_such_model", devices="t4:2")
