from dataclasses import fields

import numpy as np
import pytest

from trimtab.catalog import accelerator, accelerators
from trimtab.core import BadInputError
from trimtab.predict import calibration
from trimtab.predict.cost.constants import (
    MemoryConstants,
    PeakRates,
    StepConstants,
    device_rates,
    gather,
    parse_calibration,
    reference,
)
from trimtab.predict.cost.estimator import _has_rate

TRAINERS = [a.name for a in accelerators() if _has_rate(a)]


def test_convolutions_use_tf32_and_matrix_products_only_when_asked() -> None:
    peak = accelerator("A100").peak
    plain, request = device_rates(accelerator("A100"), "fp32"), device_rates(accelerator("A100"), "tf32")
    assert plain.conv_peak == request.conv_peak == request.matmul_peak == peak["tf32"]
    assert plain.matmul_peak == pytest.approx(1.6 * peak["fp32"])
    assert plain.matmul_peak < request.matmul_peak


def test_a_device_without_tf32_computes_in_fp32() -> None:
    v100 = accelerator("V100")
    for precision in ("fp32", "tf32"):
        facts = device_rates(v100, precision)
        assert (
            facts.conv_peak == facts.matmul_peak == facts.full_peak == pytest.approx(1.6 * v100.peak["fp32"])
        )


def test_bf16_on_a_device_that_has_only_fp16_goes_at_the_rate_of_fp16() -> None:
    v100 = accelerator("V100")
    assert "bf16" not in v100.peak
    assert device_rates(v100, "bf16").conv_peak == device_rates(v100, "bf16").matmul_peak == v100.peak["fp16"]


def test_16_bit_on_a_device_that_has_none_is_computed_in_fp32() -> None:
    assert device_rates(accelerator("K80"), "bf16") == device_rates(accelerator("K80"), "fp32")


def test_fp32_on_a_device_with_16_bit_products_only_goes_at_their_rate() -> None:
    tpu = accelerator("TPU-v4")
    assert set(tpu.peak) == {"bf16", "int8"}
    for precision in ("fp32", "tf32", "bf16", "fp16"):
        facts = device_rates(tpu, precision)
        assert facts.conv_peak == facts.matmul_peak == facts.full_peak == tpu.peak["bf16"]


@pytest.mark.parametrize("name", TRAINERS)
def test_every_device_that_has_rate_has_every_peak(name: str) -> None:
    for precision in ("fp32", "tf32", "fp16", "bf16"):
        facts = device_rates(accelerator(name), precision)
        assert min(facts.conv_peak, facts.matmul_peak, facts.full_peak, facts.bandwidth) > 0


@pytest.mark.parametrize("name", TRAINERS)
def test_a_narrower_format_is_never_slower(name: str) -> None:
    fp32, tf32, bf16 = (device_rates(accelerator(name), p) for p in ("fp32", "tf32", "bf16"))
    assert fp32.matmul_peak <= tf32.matmul_peak <= bf16.matmul_peak
    assert fp32.conv_peak <= tf32.conv_peak <= bf16.conv_peak


def test_gathered_devices_are_columns_in_the_order_of_the_index() -> None:
    one, two = PeakRates(1.0, 2.0, 3.0, 4.0), PeakRates(10.0, 20.0, 30.0, 40.0)
    rows = gather([one, two], np.array([1, 0, 1, -1]))
    assert np.asarray(rows.conv_peak).tolist() == [10.0, 1.0, 10.0, 10.0]
    assert np.asarray(rows.bandwidth).tolist() == [40.0, 4.0, 40.0, 40.0]


@pytest.mark.parametrize("kind", [StepConstants, MemoryConstants])
def test_a_search_starts_inside_what_physics_allows(
    kind: type[StepConstants] | type[MemoryConstants],
) -> None:
    for f in fields(kind):
        assert 0 < f.metadata["low"] < f.metadata["start"] < f.metadata["high"]
        assert getattr(kind(), f.name) == f.metadata["start"]


def test_a_calibration_is_read_from_plain_data() -> None:
    data = {
        "step": {"sharpness": 2.0},
        "memory": {"base": 1e6},
        "time_error": [0.5, 2.0],
        "memory_error": [0.8, 1.2],
    }
    read = parse_calibration(data, "a device")
    assert read.step == StepConstants(sharpness=2.0)
    assert read.memory == MemoryConstants(base=1e6)
    assert (read.time_error, read.memory_error, read.measured) == ((0.5, 2.0), (0.8, 1.2), True)


def test_an_entry_made_before_a_constant_was_added_estimates_as_it_did() -> None:
    later = {
        "conv_width_gain",
        "half_backward_traffic",
        "inference_half_launch",
        "inference_step_launch",
    }
    shipped = accelerator("H200").constants
    older = {**shipped, "step": {k: v for k, v in shipped["step"].items() if k not in later}}
    assert len(older["step"]) == len(shipped["step"]) - len(later)
    read = parse_calibration(older, "H200").step
    assert {name: getattr(read, name) for name in later} == dict.fromkeys(later, 1.0)
    assert {name: getattr(read, name) for name in older["step"]} == older["step"]


@pytest.mark.parametrize(
    "data", [{}, {"step": {"speed": 1.0}, "memory": {}, "time_error": [1, 1], "memory_error": [1, 1]}]
)
def test_constants_of_another_version_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(BadInputError, match="H9"):
        parse_calibration(data, "H9")


OTHERS = [a.name for a in accelerators() if not a.constants]


def test_the_h200_goes_by_its_own_measurements() -> None:
    own = calibration(accelerator("H200"))
    assert own.measured
    assert reference().name == "H200"
    assert own.step.sharpness == accelerator("H200").constants["step"]["sharpness"]


@pytest.mark.parametrize("name", OTHERS)
def test_others_carry_its_constants_over_with_a_wider_range(name: str) -> None:
    own, carried = calibration(accelerator("H200")), calibration(accelerator(name))
    assert not carried.measured
    assert (carried.step, carried.memory) == (own.step, own.memory)
    assert carried.time_error[0] < own.time_error[0] < 1.0 < own.time_error[1] < carried.time_error[1]


def test_an_alias_goes_by_the_same_constants() -> None:
    assert calibration(accelerator("NVIDIA H200")) is calibration(accelerator("H200"))
