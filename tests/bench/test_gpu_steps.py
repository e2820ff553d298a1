"""The published figures are reproduced, and the bench takes any folder of its format."""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
from trimtab_bench import BenchOptions, run_bench

from trimtab.core import BadInputError, NotFoundError
from trimtab.predict import BUNDLED_STEPS

pytestmark = pytest.mark.timeout(900)  # a fit of every fold: a minute, and many on a busy machine


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """Figures of a quick run."""
    return run_bench("gpu-steps", BenchOptions(quick=True, quiet=True)).figures


def test_the_rule_reaches_its_goals_on_models_it_was_not_fitted_on(figures: dict[str, Any]) -> None:
    assert figures["train_step_median_ape"] <= 0.15
    assert figures["train_step_mean_ape"] <= 0.20
    assert figures["infer_step_median_ape"] <= 0.18
    assert figures["peak_memory_median_ape"] <= 0.09
    assert figures["oom_accuracy"] >= 0.98
    assert 0.86 <= figures["interval_coverage"] <= 0.93


def test_the_guarded_answer_is_better_than_the_rule_on_models_left_out(figures: dict[str, Any]) -> None:
    for name in ("median_ape", "mean_ape"):
        assert figures[f"peak_memory_{name}"] < figures[f"peak_memory_rule_{name}"] - 0.008
        errors = [figures[f"train_step_outcomes{k}_{name}"] for k in (1, 2, 3)]
        assert figures[f"train_step_outcomes1_rule_{name}"] > errors[0] > errors[1] > errors[2]
        spoiled = "train_step_outcomes1_and_a_stopped_one"
        assert figures[f"{spoiled}_{name}"] < figures[f"{spoiled}_rule_{name}"]
    assert all(0.88 <= figures[f"train_step_outcomes{k}_coverage90"] <= 0.95 for k in (1, 2, 3))


def test_the_shipped_constants_are_those_of_the_bundled_steps() -> None:
    shipped = run_bench("gpu-steps", BenchOptions(shipped=True, quiet=True)).figures
    assert shipped["train_step_median_ape"] <= 0.12
    assert shipped["peak_memory_median_ape"] <= 0.07


def test_json_has_exactly_the_keys_of_the_contract() -> None:
    result = run_bench("gpu-steps", BenchOptions(shipped=True, quiet=True)).as_json()
    assert set(result) == {"bench", "figures", "baselines", "published", "seed"}


def _only(models: set[str], folder: Path) -> Path:
    """A folder with the bundled steps of some models."""
    (folder / "gpu-steps").mkdir(parents=True)
    shutil.copy(BUNDLED_STEPS / "ops.csv", folder / "gpu-steps")
    with (
        (BUNDLED_STEPS / "steps.csv").open() as source,
        (folder / "gpu-steps" / "steps.csv").open("w") as target,
    ):
        reader = csv.DictReader(source)
        writer = csv.DictWriter(target, reader.fieldnames or ())
        writer.writeheader()
        writer.writerows(row for row in reader if row["model"] in models)
    return folder


def test_coverage_is_that_of_ranges_which_never_saw_the_model(tmp_path: Path) -> None:
    alike = {"resnet18", "resnet50", "wide_resnet50_2"}
    names = ("coverage90", "coverage90_train", "coverage90_infer", "coverage90_memory")
    without = run_bench("gpu-steps", BenchOptions(quiet=True, data=_only(alike, tmp_path / "a"))).figures
    odd = BenchOptions(quiet=True, data=_only({*alike, "lstm_lm"}, tmp_path / "b"))
    with_stranger = run_bench("gpu-steps", odd).figures
    assert all(0.0 <= figures[name] <= 1.0 for figures in (without, with_stranger) for name in names)
    # The residual networks teach nothing of a recurrent one, and the range is not widened by its own rows.
    assert with_stranger["coverage90_train"] < 0.9


def test_two_models_are_too_few_for_a_range_that_saw_neither(tmp_path: Path) -> None:
    data = _only({"resnet18", "resnet50"}, tmp_path)
    assert "coverage90" not in run_bench("gpu-steps", BenchOptions(quiet=True, data=data)).figures


def test_another_folder_of_the_same_format_is_scored(tmp_path: Path) -> None:
    _only({"resnet18"}, tmp_path)
    options = BenchOptions(shipped=True, quiet=True, data=tmp_path)
    assert run_bench("gpu-steps", options).figures["rows"] == 20
    with pytest.raises(BadInputError, match="--shipped"):
        run_bench("gpu-steps", BenchOptions(quiet=True, data=tmp_path))


def test_a_missing_folder_and_an_unknown_bench_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="nowhere"):
        run_bench("gpu-steps", BenchOptions(data=tmp_path / "nowhere"))
    with pytest.raises(NotFoundError, match="gpu-steps"):
        run_bench("luck", BenchOptions())
