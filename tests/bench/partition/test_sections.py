"""The bench as a whole: the figures' names, and that tables and goals come of them."""

from typing import Any

import pytest
from trimtab_bench import BENCHES
from trimtab_bench.harness import BenchOptions
from trimtab_bench.partition.large import METHODS, cases
from trimtab_bench.partition.sections import parts_of, put_together, tables

QUICK = BenchOptions(quick=True, quiet=True)
SMALL = {"exact": 1.0, "ours": 1.0, "bound": 1.0, "proven": True, "exact_took": 2.0, "took": 0.1}
LARGE = {
    "throughput": 2.0,
    "fits": True,
    "step_seconds": 1.0,
    "idle_gib": 3.0,
    "devices": 2,
    "stages": 2,
    "replicas": 1,
    "tensor": 1,
    "microbatches": 4,
    "schedule": "1f1b",
    "sharding": "none",
    "recompute": True,
    "took": 0.5,
}
STAGES = {
    "models": {"vgg16": {"seconds": [0.1, -0.2], "memory": [0.0, 0.1]}},
    "median_seconds": 0.15,
    "worst_seconds": 0.2,
    "median_memory": 0.05,
    "worst_memory": 0.1,
}


def _answers() -> dict[tuple[str, ...], Any]:
    """A result of every part."""
    found: dict[tuple[str, ...], Any] = {}
    for part in parts_of(QUICK):
        section = part.key[0]
        found[part.key] = {
            "small": SMALL,
            "large": LARGE,
            "ten_thousand": {"seconds": 4.0},
            "gpt3": {"seconds": 20.0, "peak_gib": 1.5},
            "prediction": {"predicted": 1.1, "measured": 1.0, "error": 0.1},
            "gpu_stages": STAGES,
        }[section]
    return found


def test_the_bench_is_listed() -> None:
    assert BENCHES["partition"][0] == "partition"


def test_every_case_and_method_is_a_part() -> None:
    keys = {part.key for part in parts_of(QUICK)}
    assert {("large", case.name, method) for case in cases(quick=True) for method in METHODS} <= keys
    assert len({part.file for part in parts_of(BenchOptions(quiet=True))}) == len(
        parts_of(BenchOptions(quiet=True))
    )


def test_the_figures_have_the_names_they_are_known_by() -> None:
    figures = put_together(_answers(), QUICK)
    assert figures["small"]["within_1pct"] == 1.0
    assert figures["small"]["speedup_over_milp"] == pytest.approx(20.0)
    case = next(iter(figures["large"]))
    assert figures["large"][case]["metis"]["throughput"] == 2.0
    assert figures["geomean_over_accelerate"] == 1.0
    assert figures["seconds_10k_nodes"] == 4.0
    assert figures["gpt3"] == {"seconds": 20.0, "peak_gib": 1.5}
    assert figures["prediction_error"] == 0.1
    assert not figures["goals"]["times Accelerate's on unequal devices"]["met"]
    assert figures["goals"]["seconds for 10,000 nodes"]["met"]


def test_tables_show_all_of_it() -> None:
    figures = put_together(_answers(), QUICK)
    shown = tables(figures)
    assert [table.title for table in shown][-1] == "Goals"
    assert all(len(row) == len(table.columns) for table in shown for row in table.rows)
    assert {row[0] for row in shown[1].rows} == set(figures["large"])
