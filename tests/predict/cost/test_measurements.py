import csv
import re
from pathlib import Path
from typing import Any

import pytest

from trimtab.core import BadInputError
from trimtab.predict import read_measurements, read_stages

STEP: dict[str, Any] = {
    "model": "net",
    "batch": 4,
    "precision": "fp32",
    "mode": "train",
    "device": "cuda",
    "step_ms": 8.0,
    "peak_mem_mb": 200.0,
    "params": 1000,
    "param_bytes": 4000,
    "flops_fwd": 4e9,
    "flops_step": 12e9,
    "modules": 7,
    "status": "ok",
}


def _traced(
    phase: str, kind: str, count: int, read: tuple[int, int], written: tuple[int, int]
) -> list[dict[str, Any]]:
    """One kind of operators in a trace at batch 2 and one at batch 4."""
    return [
        {
            "model": "net",
            "batch": b,
            "phase": phase,
            "kind": kind,
            "count": count,
            "bytes_in": i,
            "bytes_out": o,
        }
        for b, i, o in zip((2, 4), read, written, strict=True)
    ]


OPERATORS = [
    *_traced("forward", "conv", 20, (1200, 1400), (400, 800)),
    *_traced("backward", "conv", 40, (2000, 4000), (1000, 2000)),
    *_traced("forward", "saved", 0, (0, 0), (3000, 6000)),
]


def _write(folder: Path, steps: list[dict[str, Any]], operators: list[dict[str, Any]] = OPERATORS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("steps.csv", steps), ("ops.csv", operators)):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return folder


def test_a_row_is_read_in_seconds_and_bytes(tmp_path: Path) -> None:
    (row,) = read_measurements(_write(tmp_path, [STEP]))
    assert (row.name, row.batch, row.training, row.device) == ("net", 4, True, "cuda")
    assert row.seconds == pytest.approx(0.008)
    assert row.peak_memory == pytest.approx(200e6)
    assert not row.out_of_memory


def test_the_model_is_a_line_through_two_traces(tmp_path: Path) -> None:
    model = read_measurements(_write(tmp_path, [STEP]))[0].model
    assert (model.parameters, model.parameter_bytes, model.modules) == (1000, 4000.0, 7)
    assert (model.forward_flop_per_sample, model.step_flop_per_sample) == (1e9, 3e9)
    forward, backward = model.operators
    assert (forward.phase, forward.kind, forward.calls) == ("forward", "conv", 20.0)
    assert (forward.fixed_bytes, forward.sample_bytes, forward.written_sample_bytes) == (1000.0, 300.0, 200.0)
    assert (backward.fixed_bytes, backward.sample_bytes) == (0.0, 1500.0)


def test_a_convolutional_model_keeps_the_results_of_its_layers(tmp_path: Path) -> None:
    assert read_measurements(_write(tmp_path, [STEP]))[0].model.saved_sample_bytes == 200.0


def test_a_transformer_keeps_what_was_traced_less_what_fused_attention_never_stores(tmp_path: Path) -> None:
    operators = [
        *_traced("forward", "matmul", 20, (1200, 1400), (400, 800)),
        *_traced("forward", "softmax", 2, (100, 200), (200, 400)),
        *_traced("forward", "saved", 0, (0, 0), (3000, 6000)),
    ]
    model = read_measurements(_write(tmp_path, [STEP], operators))[0].model
    assert model.saved_sample_bytes == pytest.approx(1500 - 2.7 * 100)


@pytest.mark.parametrize(
    ("precision", "device", "read"),
    [("fp32", "cuda", "tf32"), ("fp32", "cpu", "fp32"), ("bf16", "cuda", "bf16")],
)
def test_fp32_on_a_gpu_means_tf32(tmp_path: Path, precision: str, device: str, read: str) -> None:
    folder = _write(tmp_path, [{**STEP, "precision": precision, "device": device}])
    assert read_measurements(folder)[0].precision == read


def test_a_row_on_a_cpu_has_no_peak_of_device_memory(tmp_path: Path) -> None:
    (row,) = read_measurements(_write(tmp_path, [{**STEP, "device": "cpu", "peak_mem_mb": ""}]))
    assert (row.seconds, row.peak_memory) == (pytest.approx(0.008), None)


def test_a_step_that_ran_out_of_memory_has_no_numbers(tmp_path: Path) -> None:
    oom = {**STEP, "batch": 4096, "status": "oom", "step_ms": "", "peak_mem_mb": ""}
    fine, failed = read_measurements(_write(tmp_path, [STEP, oom]))
    assert (fine.out_of_memory, failed.out_of_memory) == (False, True)
    assert (failed.batch, failed.seconds, failed.peak_memory) == (4096, None, None)


def test_an_inference_row_is_not_training(tmp_path: Path) -> None:
    rows = read_measurements(_write(tmp_path, [STEP, {**STEP, "mode": "infer"}]))
    assert [r.training for r in rows] == [True, False]


def test_rows_of_a_model_without_operators_are_left_out(tmp_path: Path) -> None:
    rows = [STEP, {**STEP, "model": "stranger"}]
    assert [r.name for r in read_measurements(_write(tmp_path, rows))] == ["net"]


def test_flop_that_could_not_be_counted_count_as_none(tmp_path: Path) -> None:
    (row,) = read_measurements(_write(tmp_path, [{**STEP, "flops_fwd": "", "flops_step": ""}]))
    assert row.model.forward_flop_per_sample == row.model.step_flop_per_sample == 0


def test_flop_of_a_whole_step_come_from_a_training_row_wherever_it_stands(tmp_path: Path) -> None:
    infer = {**STEP, "mode": "infer", "flops_step": STEP["flops_fwd"]}
    first = read_measurements(_write(tmp_path / "a", [infer, STEP]))[0].model
    alone = read_measurements(_write(tmp_path / "b", [STEP]))[0].model
    assert first.step_flop_per_sample == alone.step_flop_per_sample


def test_a_folder_that_holds_gpu_steps_will_do(tmp_path: Path) -> None:
    _write(tmp_path / "gpu-steps", [STEP])
    assert [r.name for r in read_measurements(tmp_path)] == ["net"]


def test_a_folder_with_its_own_files_is_read_itself(tmp_path: Path) -> None:
    _write(tmp_path / "gpu-steps", [STEP, STEP])
    assert len(read_measurements(_write(tmp_path, [STEP]))) == 1


@pytest.mark.parametrize("name", ["steps.csv", "ops.csv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (_write(tmp_path, [STEP]) / name).unlink()
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path / name))):
        read_measurements(tmp_path)


@pytest.mark.parametrize("column", STEP)
def test_a_missing_column_of_steps_is_named(tmp_path: Path, column: str) -> None:
    folder = _write(tmp_path, [{k: v for k, v in STEP.items() if k != column}])
    with pytest.raises(BadInputError, match=f"steps.csv .*'{column}'"):
        read_measurements(folder)


@pytest.mark.parametrize("column", OPERATORS[0])
def test_a_missing_column_of_operators_is_named(tmp_path: Path, column: str) -> None:
    folder = _write(tmp_path, [STEP], [{k: v for k, v in row.items() if k != column} for row in OPERATORS])
    with pytest.raises(BadInputError, match=f"ops.csv .*'{column}'"):
        read_measurements(folder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"step_ms": 0},
        {"step_ms": -1},
        {"step_ms": "nan"},
        {"step_ms": "inf"},
        {"step_ms": "quick"},
        {"batch": "many"},
        {"peak_mem_mb": ""},
    ],
)
def test_a_row_that_is_no_measurement_is_named_by_its_line(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=f"steps.csv, line 3: .*{next(iter(wrong.values()))}"):
        read_measurements(_write(tmp_path, [STEP, {**STEP, **wrong}]))


def test_a_batch_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"steps\.csv, line 2"):
        read_measurements(_write(tmp_path, [{**STEP, "batch": 0}]))


def test_a_row_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    folder = _write(tmp_path, [{k: STEP[k] for k in (*(k for k in STEP if k != "step_ms"), "step_ms")}])
    text = (folder / "steps.csv").read_text()
    (folder / "steps.csv").write_text(text.rstrip().rpartition(",")[0] + "\n")
    with pytest.raises(BadInputError, match=r"steps\.csv, line 2"):
        read_measurements(folder)


def test_a_model_traced_at_one_batch_only_is_refused(tmp_path: Path) -> None:
    once = [row for row in OPERATORS if row["batch"] == 2]
    with pytest.raises(BadInputError, match=r"ops\.csv .*net"):
        read_measurements(_write(tmp_path, [STEP], once))


def test_a_folder_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        read_measurements(_write(tmp_path, [{**STEP, "model": "stranger"}]))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (_write(tmp_path, [STEP]) / "steps.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadInputError, match=r"steps\.csv"):
        read_measurements(tmp_path)


def test_a_file_that_is_not_of_stages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"stages\.csv"):
        read_stages(tmp_path)
    (tmp_path / "stages.csv").write_text("model,samples\na,b\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=r"stages\.csv"):
        read_stages(tmp_path)
