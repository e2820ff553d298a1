"""The published figures are reproduced, and the bench takes any folder of its format."""

import csv
import shutil
from pathlib import Path

import pytest

from trimtab.bench import BUNDLED_STEPS, BenchOptions, run_bench
from trimtab.core import BadInputError, NotFoundError


def test_the_rule_reaches_its_goals_on_models_it_was_not_fitted_on() -> None:
    figures = run_bench("gpu-steps", BenchOptions(quick=True, quiet=True)).figures
    assert figures["train_step_median_ape"] <= 0.15
    assert figures["train_step_mean_ape"] <= 0.20
    assert figures["infer_step_median_ape"] <= 0.18
    assert figures["peak_memory_median_ape"] <= 0.09
    assert figures["oom_accuracy"] >= 0.98
    assert 0.86 <= figures["interval_coverage"] <= 0.93


def test_the_shipped_constants_are_those_of_the_bundled_steps() -> None:
    shipped = run_bench("gpu-steps", BenchOptions(shipped=True, quiet=True)).figures
    assert shipped["train_step_median_ape"] <= 0.12
    assert shipped["peak_memory_median_ape"] <= 0.07


def test_json_has_exactly_the_keys_of_the_contract() -> None:
    result = run_bench("gpu-steps", BenchOptions(shipped=True, quiet=True)).as_json()
    assert set(result) == {"bench", "figures", "baselines", "published", "seed"}


def test_another_folder_of_the_same_format_is_scored(tmp_path: Path) -> None:
    folder = tmp_path / "gpu-steps"
    folder.mkdir()
    shutil.copy(BUNDLED_STEPS / "ops.csv", folder)
    with (BUNDLED_STEPS / "steps.csv").open() as source, (folder / "steps.csv").open("w") as target:
        reader = csv.DictReader(source)
        writer = csv.DictWriter(target, reader.fieldnames or ())
        writer.writeheader()
        writer.writerows(row for row in reader if row["model"] == "resnet18")
    options = BenchOptions(shipped=True, quiet=True, data=tmp_path)
    assert run_bench("gpu-steps", options).figures["rows"] == 20
    with pytest.raises(BadInputError, match="at least two models"):
        run_bench("gpu-steps", BenchOptions(quiet=True, data=tmp_path))


def test_a_missing_folder_and_an_unknown_bench_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="does not exist; give a folder"):
        run_bench("gpu-steps", BenchOptions(data=tmp_path / "nowhere"))
    with pytest.raises(NotFoundError, match="there are gpu-steps"):
        run_bench("luck", BenchOptions())
