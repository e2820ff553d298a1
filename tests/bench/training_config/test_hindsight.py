"""What no first choice can beat."""

import csv
from pathlib import Path

import pytest
from trimtab_bench.training_config import hindsight, search

HEADER = ("provider", "A_family", "A_vcpu", "B_family", "B_vcpu", "C_family", "C_type", "C_vcpu", "nodes")


def _write(path: Path, seconds: dict[str, tuple[float, float]]) -> None:
    """Workloads with seconds on two and on three machines; negative ones failed."""
    path.parent.mkdir(parents=True)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow((*HEADER, "workload", "target_cost", "target_runtime", "status"))
        for workload, both in seconds.items():
            for nodes, took in zip((2, 3), both, strict=True):
                cost, status = abs(took) * nodes * 0.1 / 3600, "ok" if took > 0 else "failed"
                rows.writerow(["A", 0, 0, *[""] * 5, nodes, workload, f"{cost:.9f}", abs(took), status])


def test_workloads_of_the_same_words_get_the_same_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindsight, "DATA", {"multicloud": search.DATA["multicloud"]})
    seconds = {"d-one": (10.0, 20.0), "d-two": (40.0, 10.0), "e-three": (10.0, 30.0)}
    _write(tmp_path / "multicloud" / "multi-cloud-configuration.csv", seconds)
    found = hindsight.best_first_choices(tmp_path)["multicloud"]
    assert found["time"] == pytest.approx((2 * min((1 + 4) / 2, (2 + 1) / 2) + 1) / 3)


def test_a_failure_counts_as_the_worst_that_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindsight, "DATA", {"multicloud": search.DATA["multicloud"]})
    seconds = {"d-one": (10.0, 20.0), "d-two": (-1.0, 10.0)}
    _write(tmp_path / "multicloud" / "multi-cloud-configuration.csv", seconds)
    assert hindsight.best_first_choices(tmp_path)["multicloud"]["time"] == pytest.approx(1.0)
