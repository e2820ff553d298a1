from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import Model
from trimtab.predict import demand_of
from trimtab.predict.cost.constants import Device, StepConstants
from trimtab.predict.cost.demand import Demand, stack
from trimtab.predict.cost.step_time import StepTime, step_time

Make = Callable[..., Model]
GPU = Device(conv_peak=400e12, matmul_peak=60e12, full_peak=400e12, bandwidth=3e12)
AMOUNTS = [f.name for f in fields(Demand) if f.name not in ("training", "half")]

amount = st.floats(0, 1e15)
flag = st.sampled_from([0.0, 1.0])
# Wider convolutions are not more work: the FLOP stay and go faster.
WORK = [name for name in AMOUNTS if name != "conv_weight_bytes"]
demands = st.builds(Demand, **dict.fromkeys(AMOUNTS, amount), training=flag, half=flag)


def _values(constant: Any) -> st.SearchStrategy[float]:
    return st.floats(constant.metadata["low"], constant.metadata["high"])


constants = st.builds(StepConstants, **{f.name: _values(f) for f in fields(StepConstants)})
rate = st.floats(1e11, 1e16)
devices = st.builds(Device, rate, rate, rate, rate)


@given(demands, devices, constants)
def test_the_parts_add_up_and_none_is_negative(ask: Demand, device: Device, fitted: StepConstants) -> None:
    time = step_time(ask, device, fitted)
    parts = [time.launch, time.compute, time.traffic, time.update]
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(time.total, rel=1e-9)


@given(demands, devices, constants, st.sampled_from(WORK), st.floats(1.0, 1e3), amount)
def test_more_work_never_makes_a_step_faster(
    ask: Demand, device: Device, fitted: StepConstants, name: str, factor: float, more: float
) -> None:
    larger = replace(ask, **{name: getattr(ask, name) * factor + more})
    assert step_time(larger, device, fitted).total >= step_time(ask, device, fitted).total * (1 - 1e-12)


@given(demands, devices, constants, st.sampled_from([f.name for f in fields(Device)]))
def test_twice_the_peak_or_bandwidth_is_never_slower(
    ask: Demand, device: Device, fitted: StepConstants, name: str
) -> None:
    better = replace(device, **{name: 2 * getattr(device, name)})
    assert step_time(ask, better, fitted).total <= step_time(ask, device, fitted).total * (1 + 1e-12)


@given(demands, devices, constants)
def test_a_step_takes_at_least_as_long_as_its_launches(
    ask: Demand, device: Device, fitted: StepConstants
) -> None:
    alone = step_time(replace(ask, **dict.fromkeys(AMOUNTS, 0.0)), device, fitted)
    least = fitted.step_launch * (1.0 if ask.training else fitted.inference_step_launch)
    assert alone.total == pytest.approx(least)
    assert (alone.compute, alone.traffic, alone.update) == (0.0, 0.0, 0.0)
    assert step_time(ask, device, fitted).total >= least * (1 - 1e-12)


@given(st.lists(demands, min_size=1, max_size=5), devices, constants)
def test_arrays_and_scalars_agree(asks: list[Demand], device: Device, fitted: StepConstants) -> None:
    at_once = step_time(stack(asks), device, fitted)
    for row, ask in enumerate(asks):
        alone = step_time(ask, device, fitted)
        for f in fields(StepTime):
            assert getattr(at_once, f.name)[row] == pytest.approx(getattr(alone, f.name), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "amount", "seconds"),
    [
        ("conv_flop", 400e12, 1 / 0.40),
        ("matmul_flop", 60e12, 1 / 0.46),
        ("grouped_flop", 400e12, 1 / 0.30),
        ("forward_conv_bytes", 3e12, 1 / 0.42),
        ("backward_conv_bytes", 3e12, 1.5 / 0.42),
        ("forward_matmul_bytes", 3e12, 1 / 0.63),
        ("forward_light_bytes", 3e12, 1 / 1.04),
        ("copied_bytes", 3e12, 1 / 0.63),
        ("recurrent_bytes", 3e12, 1 / 0.10),
        ("updated_bytes", 3e12, 1 / 0.125),
    ],
)
def test_work_far_beyond_the_launches_goes_at_a_share_of_the_peak(
    name: str, amount: float, seconds: float
) -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=1.0, half=0.0)
    assert step_time(replace(nothing, **{name: amount}), GPU, StepConstants()).total == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "launch"),
    [
        ("conv_calls", 90e-6),
        ("matmul_calls", 50e-6),
        ("attention_calls", 90e-6),
        ("recurrent_calls", 400e-6),
        ("other_calls", 50e-6),
        ("small_calls", 10e-6),
    ],
)
@pytest.mark.parametrize(
    ("training", "half", "factor"), [(1, 0, 1.0), (0, 0, 0.55), (1, 1, 1.25), (0, 1, 0.6875)]
)
def test_calls_far_beyond_the_work_cost_their_launches(
    name: str, launch: float, training: float, half: float, factor: float
) -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=training, half=half)
    constants = StepConstants(kernel_floor=0.0)
    total = step_time(replace(nothing, **{name: 1e6}), GPU, constants).total
    assert total == pytest.approx(1e-4 + 1e6 * launch * factor)


def test_inference_has_launch_constants_of_its_own() -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=0.0, half=1.0)
    fitted = StepConstants(inference_step_launch=0.2, inference_half_launch=1.1, kernel_floor=0.0)
    calls = 1e6 * 90e-6 * 0.55 * 1.25 * 1.1
    assert step_time(nothing, GPU, fitted).total == pytest.approx(0.2 * 1e-4)
    assert step_time(replace(nothing, conv_calls=1e6), GPU, fitted).total == pytest.approx(0.2e-4 + calls)
    training = replace(nothing, training=1.0, conv_calls=1e6)
    assert step_time(training, GPU, fitted) == step_time(training, GPU, StepConstants(kernel_floor=0.0))


@pytest.mark.parametrize(
    ("weights", "factor"),
    [
        (1.2e6, 1.0),
        (2.4e6, 1.5),
        (0.3e6, 1 / 1.5**2),
        (1e12, 1.5 ** np.log2(5 / 1.2)),
        (0.0, 1.5 ** np.log2(1 / 60)),
    ],
)
def test_convolutions_with_more_weights_go_faster_within_the_measured_widths(
    weights: float, factor: float
) -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=1.0, half=0.0)
    ask = replace(nothing, conv_flop=400e12, conv_weight_bytes=weights)
    time = step_time(ask, GPU, StepConstants(conv_width_gain=1.5))
    assert time.total == pytest.approx(1 / 0.40 / factor)


def test_a_byte_of_the_backward_pass_has_a_price_of_its_own_in_16_bit() -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=1.0, half=1.0)
    fitted = StepConstants(half_traffic=1.0, half_backward_traffic=0.8)
    for name, seconds in (("forward_conv_bytes", 1 / 0.42), ("backward_conv_bytes", 0.8 * 1.5 / 0.42)):
        assert step_time(replace(nothing, **{name: 3e12}), GPU, fitted).total == pytest.approx(seconds)


def test_16_bit_numbers_make_less_traffic_and_faster_products() -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=1.0, half=1.0)
    traffic = step_time(replace(nothing, forward_conv_bytes=3e12), GPU, StepConstants(half_traffic=0.7))
    assert traffic.total == pytest.approx(0.7 / 0.42)
    fitted = StepConstants(half_conv_utilization=0.8, half_matmul_utilization=0.9)
    for name, amount, share in (("conv_flop", 400e12, 0.8), ("matmul_flop", 60e12, 0.9)):
        assert step_time(replace(nothing, **{name: amount}), GPU, fitted).total == pytest.approx(1 / share)


def test_host_and_device_in_a_tie_delay_each_other_a_little() -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=1.0, half=0.0)
    tie = replace(nothing, conv_flop=1e-4 * 0.40 * 400e12)
    time = step_time(tie, GPU, StepConstants(sharpness=3.0))
    assert time.total == pytest.approx(1e-4 * 2 ** (1 / 3))
    assert time.launch == pytest.approx(time.total / 2)
    assert time.compute == pytest.approx(time.total / 2)


def test_a_model_without_convolutions_gets_finite_parts(make_model: Make) -> None:
    time = step_time(demand_of(make_model(conv=0), np.array([1.0, 64.0])), GPU, StepConstants())
    assert all(np.isfinite(getattr(time, f.name)).all() for f in fields(StepTime))


def test_scaling_scales_every_part() -> None:
    assert StepTime(10.0, 1.0, 2.0, 3.0, 4.0).scaled(0.5) == StepTime(5.0, 0.5, 1.0, 1.5, 2.0)
