"""Constants are found again in steps that the formulas themselves made, and never looked up beforehand."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest

from trimtab.catalog import accelerator
from trimtab.core import BadInputError, Model
from trimtab.predict import (
    BUNDLED_STAGES,
    Calibration,
    MeasuredStep,
    calibrate,
    calibration_data,
    cases,
    fit_constants,
    fit_cpu_constants,
    leave_one_model_out,
    leave_two_models_out,
    predict_memory,
    predict_seconds,
    ranges_without_the_model,
    read_stages,
)
from trimtab.predict.cost.constants import (
    CpuConstants,
    MemoryConstants,
    StepConstants,
    cpu_calibration,
    parse_calibration,
)
from trimtab.predict.cost.fit import predict_stages, stage_cases
from trimtab.predict.cost.measurements import MeasuredStage

H200 = accelerator("H200")
TRUE_STEP = StepConstants(
    step_launch=2e-4,
    conv_launch=120e-6,
    matmul_launch=30e-6,
    conv_utilization=0.55,
    matmul_utilization=0.30,
    half_matmul_utilization=0.70,
    conv_bandwidth=0.25,
    light_bandwidth=2.0,
    update_bandwidth=0.06,
    sharpness=3.5,
)
TRUE_MEMORY = MemoryConstants(base=120e6, saved=1.2, conv_saved=0.8, half_saved=0.6, alive=20.0)


@pytest.fixture(scope="module")
def synthetic(make_model: Callable[..., Model]) -> list[MeasuredStep]:
    """Steps of five models as the formulas say they take under the constants above."""
    models = {
        "wide": make_model(conv=15, matmul=1, flop=2e10, parameters=60_000_000),
        "deep": make_model(conv=150, matmul=1, flop=4e9),
        "language": make_model(conv=0, matmul=90, attention=12, flop=3e11, parameters=200_000_000),
        "perceptron": make_model(conv=0, matmul=6, flop=2e8, parameters=100_000_000),
        "recurrent": make_model(conv=0, matmul=1, rnn=4, flop=5e9, parameters=30_000_000),
    }
    blank = [
        MeasuredStep(model, name, batch, precision, training, "cuda", 1.0, 1.0)
        for name, model in models.items()
        for batch in (1, 16, 256)
        for precision in ("tf32", "bf16")
        for training in (True, False)
    ]
    case = cases(blank, H200)
    seconds, peaks = predict_seconds(case, TRUE_STEP), predict_memory(case, TRUE_MEMORY)
    return [
        replace(row, seconds=float(s), peak_memory=float(p))
        for row, s, p in zip(blank, seconds, peaks, strict=True)
    ]


def _errors(
    steps: Sequence[MeasuredStep], seconds: np.ndarray, peaks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    true_seconds, true_peaks = (np.array([getattr(s, k) for s in steps]) for k in ("seconds", "peak_memory"))
    return np.abs(seconds / true_seconds - 1), np.abs(peaks / true_peaks - 1)


def test_a_fit_recovers_the_times_and_peaks_it_was_shown(synthetic: list[MeasuredStep]) -> None:
    step, memory = fit_constants(synthetic, H200)
    case = cases(synthetic, H200)
    time_error, memory_error = _errors(synthetic, predict_seconds(case, step), predict_memory(case, memory))
    start_error, _ = _errors(synthetic, predict_seconds(case, StepConstants()), predict_memory(case, memory))
    assert np.median(start_error) > 0.10
    assert np.median(time_error) < 0.03
    assert time_error.max() < 0.10
    assert np.median(memory_error) < 0.03


def test_a_fitted_constant_stays_in_the_range_physics_allows(synthetic: list[MeasuredStep]) -> None:
    absurd = [replace(s, seconds=1e3 * (s.seconds or 0.0)) for s in synthetic]
    step, memory = fit_constants(absurd, H200)
    for constants in (step, memory):
        for f in fields(constants):
            low, high = f.metadata["low"], f.metadata["high"]
            assert low * (1 - 1e-9) <= getattr(constants, f.name) <= high * (1 + 1e-9)


def test_steps_that_ran_out_of_memory_teach_nothing(synthetic: list[MeasuredStep]) -> None:
    failed = replace(synthetic[0], batch=10**6, seconds=None, peak_memory=None)
    assert fit_constants([failed, *synthetic], H200) == fit_constants(synthetic, H200)


def test_a_few_wild_rows_do_not_carry_the_fit_away(synthetic: list[MeasuredStep]) -> None:
    wild = [
        replace(s, seconds=100 * (s.seconds or 0.0)) if i % 20 == 0 else s for i, s in enumerate(synthetic)
    ]
    case = cases(synthetic, H200)
    step, memory = fit_constants(wild, H200)
    time_error, _ = _errors(synthetic, predict_seconds(case, step), predict_memory(case, memory))
    assert np.median(time_error) < 0.05


def test_inference_was_measured_with_the_optimizer_s_state_still_allocated(
    make_model: Callable[..., Model],
) -> None:
    without, with_state = (make_model(optimizer_state_bytes=b) for b in (0.0, 3e9))
    for training in (True, False):
        rows = [MeasuredStep(m, "m", 8, "tf32", training, "cuda", 1.0, 1.0) for m in (without, with_state)]
        less, more = predict_memory(cases(rows, H200), TRUE_MEMORY)
        assert more - less == pytest.approx(3e9)


def test_leaving_a_model_out_never_shows_the_fit_its_rows(synthetic: list[MeasuredStep]) -> None:
    name = "deep"
    corrupt = [
        replace(s, seconds=50 * (s.seconds or 0.0), peak_memory=9 * (s.peak_memory or 0.0))
        if s.name == name
        else s
        for s in synthetic
    ]
    theirs = np.array([s.name == name for s in synthetic])
    honest, corrupted = leave_one_model_out(synthetic, H200), leave_one_model_out(corrupt, H200)
    for before, after in zip(honest, corrupted, strict=True):
        assert after[theirs].tolist() == before[theirs].tolist()
        assert not np.allclose(after[~theirs], before[~theirs], rtol=0.01)


def test_every_model_is_left_out_once_and_announced(synthetic: list[MeasuredStep]) -> None:
    announced: list[str] = []
    seconds, peaks = leave_one_model_out(synthetic, H200, progress=announced.append)
    assert announced == ["wide", "deep", "language", "perceptron", "recurrent"]
    assert (seconds > 0).all()
    assert (peaks > 0).all()


def test_a_calibration_brings_the_errors_on_unseen_models(synthetic: list[MeasuredStep]) -> None:
    unseen, peaks = leave_one_model_out(synthetic, H200)
    result = calibrate(synthetic, H200, (unseen, peaks))
    ratios = np.array([s.seconds for s in synthetic]) / unseen
    assert result.time_error == pytest.approx(tuple(np.quantile(ratios, [0.05, 0.95])))
    assert result.time_error[0] <= 1 <= result.time_error[1]
    assert (result.step, result.memory) == fit_constants(synthetic, H200)
    assert result.measured


def test_a_range_without_a_model_is_what_calibrating_on_the_others_states(
    synthetic: list[MeasuredStep],
) -> None:
    announced: list[str] = []
    without = leave_two_models_out(synthetic, H200, progress=announced.append)
    time, memory = ranges_without_the_model(synthetic, without)
    assert len(announced) == 10
    for name, (seconds, _) in without.items():
        assert np.isnan(seconds).tolist() == [s.name == name for s in synthetic]
    for name in ("wide", "recurrent"):
        others = [s for s in synthetic if s.name != name]
        stated = calibrate(others, H200, leave_one_model_out(others, H200))
        theirs = [s.name == name for s in synthetic]
        assert time[theirs] == pytest.approx(np.tile(stated.time_error, (12, 1)), rel=1e-6)
        assert memory[theirs] == pytest.approx(np.tile(stated.memory_error, (12, 1)), rel=1e-6)


def test_a_calibration_is_kept_as_plain_data_of_four_digits() -> None:
    result = Calibration(TRUE_STEP, TRUE_MEMORY, (0.712345, 1.5), (0.9, 1.1), (0.7, 1.6))
    back = parse_calibration(json.loads(json.dumps(calibration_data(result))), "H200")
    assert back == replace(result, time_error=(0.7123, 1.5))


def test_too_little_to_fit_is_refused_in_one_sentence(synthetic: list[MeasuredStep]) -> None:
    failed = [replace(s, seconds=None, peak_memory=None) for s in synthetic]
    for rows in ([], failed, [replace(s, peak_memory=None) for s in synthetic]):
        with pytest.raises(BadInputError, match="H200"):
            fit_constants(rows, H200)


def test_the_models_of_cases_are_in_order_of_appearance(synthetic: list[MeasuredStep]) -> None:
    assert cases(synthetic[::-1], H200).models == ["recurrent", "perceptron", "language", "deep", "wide"]


def test_the_shipped_cpu_constants_are_those_of_the_bundled_steps(measured: list[MeasuredStep]) -> None:
    result = fit_cpu_constants([s for s in measured if s.device == "cpu"], 2.0)
    for field in fields(CpuConstants):
        assert getattr(result, field.name) == pytest.approx(
            getattr(cpu_calibration().constants, field.name), rel=0.01
        )


@pytest.fixture(scope="module")
def stages() -> list[MeasuredStage]:
    return read_stages(BUNDLED_STAGES)


def test_constants_hold_for_stages_of_a_model_they_were_not_fitted_to(
    measured: list[MeasuredStep], stages: list[MeasuredStage]
) -> None:
    steps = [s for s in measured if s.device != "cpu" and s.name in ("resnet50", "bert_base_s128", "vgg16")]
    known = [item for item in stages if item.model != "gpt2_medium"]
    left_out = stage_cases([item for item in stages if item.model == "gpt2_medium"], H200)
    constants, _ = fit_constants(steps, H200, known)
    assert np.median(np.abs(predict_stages(left_out, constants) / left_out.seconds - 1)) < 0.25


def test_stages_of_a_held_out_family_teach_nothing(
    synthetic: list[MeasuredStep], stages: list[MeasuredStage]
) -> None:
    related = [replace(item, model="deep_101", forward=9 * item.forward) for item in stages[:8]]
    theirs = np.array([s.name == "deep" for s in synthetic])
    without, with_related = (leave_one_model_out(synthetic, H200, some)[0] for some in ([], related))
    assert with_related[theirs].tolist() == without[theirs].tolist()
    assert not np.allclose(with_related[~theirs], without[~theirs], rtol=0.01)


def test_a_calibration_with_stages_brings_the_error_of_parts(
    synthetic: list[MeasuredStep], stages: list[MeasuredStage]
) -> None:
    few = [item for item in stages if item.model in ("gpt2_small", "vgg16")]
    result = calibrate(synthetic, H200, leave_one_model_out(synthetic, H200, few), few)
    assert result.operation_error[0] <= 1 <= result.operation_error[1]
    assert result.operation_error != result.time_error
