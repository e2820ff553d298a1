"""Real steps beside predicted ones."""

import pytest
from trimtab_bench.partition.prediction import StagedRun, run_figures, summary


def test_a_run_is_predicted_and_measured() -> None:
    found = run_figures(StagedRun("chain", 0.5, 2, 8))
    assert found["predicted"] > 0.0 < found["measured"]
    assert found["error"] == pytest.approx(found["predicted"] / found["measured"] - 1.0)
    assert found["loss_difference"] <= 1e-5


def test_names_say_how_a_run_is_cut() -> None:
    assert StagedRun("chain", 0.3, 4, 8, "gpipe").name == "chain 30% + 70%, 4 × 8, gpipe"
    assert StagedRun("chain", 1.0, 1, 8).name == "chain 2 replicas, 1 × 8, 1f1b"


def test_the_median_and_the_worst_error_whichever_way() -> None:
    found = summary({name: {"error": error} for name, error in (("a", -0.4), ("b", 0.1), ("c", -0.2))})
    assert (found["median"], found["worst"]) == (0.2, 0.4)
    assert found["within_25pct"] == pytest.approx(2 / 3)
    assert summary({})["median"] is None
