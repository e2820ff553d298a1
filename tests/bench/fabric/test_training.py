"""Figures and tables of the training section, from results of its parts."""

import math
from typing import Any

import pytest
from trimtab_bench.fabric import training
from trimtab_bench.harness import Key


def answer(*ratios: float, **more: Any) -> dict[str, Any]:
    """Result of one job with and without faults."""
    told = {
        "ratios": list(ratios),
        "p90_ratios": [1.01 for _ in ratios],
        "loss_difference": 0.0,
        "final_loss": 0.5,
        "crashes": [],
        "faults": 4,
        "stalls_s": [0.1, 0.06, 0.2],
        "calm_stalls_s": [0.01, 0.03, 0.02],
        "steps": 1000,
        "seconds": [[101.0, 100.0] for _ in ratios],
        "step_s": 0.1,
    }
    return told | more


def answers(**changed: Any) -> dict[Key, Any]:
    """Results of all parts."""
    costs = {"initialisation_s": 5.0, "step_s": 0.1, "epoch_s": 312.5, "saving_s": 0.02, "loading_s": 0.01}
    advise = "trimtab fabric advise 1024 --saving 0.0100s..0.0300s --restarting 4.0000s..6.0000s"
    told: dict[str, Any] = {
        "data parallel": answer(1.01, 1.03),
        "pipeline": answer(1.02),
        "frr": answer(1.2),
        "one port": {
            "patient": {"slowdown": 1.4, "failure": "", "longest_stall_s": 28.0, "faults": 3},
            "restarting": {
                "slowdown": 1.8,
                "ended_well": True,
                "restarts": 2,
                "lost_steps": 90,
                "faults": 4,
            },
        },
        "collectives": {
            "rates": {"fabric": {"all_reduce 64 KiB": 1e8}, "one_port": {"all_reduce 64 KiB": 1.25e8}},
            "stalls": {"rto_min": [0.06, 0.1], "without": [0.26, 0.25, 0.3]},
        },
        "costs": {name: {**costs, "advise": advise} for name in training.EXAMPLES},
    }
    return {("training", name): value for name, value in (told | changed).items()}


def test_every_part_has_its_place_in_the_figures() -> None:
    for quick in (False, True):
        assert {part.key for part in training.parts(quick)} == answers().keys()
    told = training.figures(answers())
    assert told["training_slowdown"] == pytest.approx(1.02)
    assert told["training_slowdowns"] == [1.01, 1.03]
    assert (told["pipeline_slowdown"], told["frr_slowdown"], told["restart_slowdown"]) == (1.02, 1.2, 1.8)
    assert (told["training_crashes"], told["training_loss_difference"]) == (0, 0.0)
    assert told["training_stall_ms"]["median"] == pytest.approx(100.0)
    assert told["training_stall_ms"]["median_without_faults"] == pytest.approx(20.0)
    assert told["training_stall_ms"]["share_of_time"] == pytest.approx(0.36 / 202.0)
    assert told["collectives"]["all_reduce 64 KiB"]["ratio"] == pytest.approx(0.8)
    assert told["collective_stall_ms"]["without"]["worst"] == pytest.approx(300.0)


def test_a_job_that_died_is_told_as_one() -> None:
    died = answer(math.inf, crashes=["rank 1 was killed by SIGKILL"])
    told = training.figures(answers(pipeline=died))
    assert (told["pipeline_slowdown"], told["training_crashes"]) == (math.inf, 1)


def test_the_tables_are_as_wide_as_their_columns() -> None:
    made = training.tables(answers())
    assert [len(table.rows) for table in made] == [5, 2, 1, 2]
    assert all(len(row) == len(table.columns) for table in made for row in table.rows)
    first = made[0].rows[0]
    assert "1.020 (1.010 to 1.030)" in first
