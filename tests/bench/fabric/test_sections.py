"""The bench as a whole: figures of all sections in one, goals that can be missed, and who may run it."""

import os
from types import SimpleNamespace

import pytest
from made_up_outages import outages, repeat, rest
from trimtab_bench import BENCHES, BenchOptions, run_bench
from trimtab_bench.fabric import sections, training
from trimtab_bench.fabric.outages import FAULTS, VARIANTS
from trimtab_bench.fabric.sections import MEASURED, put_together

from trimtab.core import BadInputError

TRAINED = {"training_slowdown": 1.008, "training_crashes": 0, "training_loss_difference": 0.0}


@pytest.fixture
def _trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training has answered."""
    others = [section for section in MEASURED if section is not training]
    answer = SimpleNamespace(figures=lambda found: TRAINED, tables=lambda found: [])
    monkeypatch.setattr(sections, "MEASURED", (*others, answer))


@pytest.mark.usefixtures("_trained")
def test_figures_of_all_sections_are_there() -> None:
    told = put_together(outages(4.0) | rest())
    assert told["outage_ms"]["frr"]["blackhole"]["n"] == 2
    assert told["throughput_ratio"] == pytest.approx(0.8)
    assert told["throughput"]["4"]["ratio"] == pytest.approx(0.5)
    assert told["throughput"]["1"]["underlay_gbit_s"] == pytest.approx(8.0)
    assert told["reconcile_ms"] == {"p50": pytest.approx(6), "max": pytest.approx(50), "n": 3}
    assert (told["after_losing_all_s"], told["full_sync_s_10k"]) == (1.02, 0.3)
    assert (told["false_failovers"], told["false_failovers_10x3"]) == (0, 3)
    assert told["training_slowdown"] == 1.008


@pytest.mark.usefixtures("_trained")
def test_every_goal_that_is_reached_is_met() -> None:
    goals = put_together(outages(4.0) | rest())["goals"]
    assert {name for name, goal in goals.items() if not goal["met"]} == set()


@pytest.mark.usefixtures("_trained")
def test_a_single_bad_repeat_misses_a_goal_of_the_worst() -> None:
    found = outages(4.0) | rest()
    found["outages", "ours", "link-down"] = {
        "repeats": [repeat(4)] * 19 + [repeat(10.5)],
        "missed": 0,
        "labs": 1,
    }
    found["false_failovers", "ours"] |= {"failovers": 1}
    goals = put_together(found)["goals"]
    missed = {name for name, goal in goals.items() if not goal["met"]}
    assert missed == {"outage of a link down, worst ms", "failovers without a fault"}
    assert goals["outage of a link down, worst ms"]["value"] == 10.5


@pytest.mark.usefixtures("_trained")
def test_every_table_has_as_many_cells_as_columns() -> None:
    found = outages() | rest()
    tables = [table for section in sections.MEASURED for table in section.tables(found)]
    assert len(tables) >= 5
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)


@pytest.mark.parametrize("quick", [True, False])
def test_every_variant_meets_every_fault(quick: bool) -> None:
    keys = [part.key for section in MEASURED for part in section.parts(quick)]
    assert len(keys) == len(set(keys))
    asked = {key[1:] for key in keys if key[0] == "outages"}
    assert asked == {(variant, fault) for variant in VARIANTS for fault in FAULTS}
    assert keys[-1][0] != "outages", "what loads the machine comes last"


def test_it_is_listed_and_wants_root(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "fabric" in BENCHES
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BadInputError, match="root"):
        run_bench("fabric", BenchOptions(quiet=True))
