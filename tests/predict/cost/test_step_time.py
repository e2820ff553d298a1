"""Seconds of single operations add up to what the whole step is estimated at, and behave as they should."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import accelerator
from trimtab.core import Model
from trimtab.predict import Hardware, Operations, cpu_step_time, demand_of, operation_times
from trimtab.predict.cost.constants import CpuConstants, PeakRates, StepConstants, cpu_calibration
from trimtab.predict.cost.demand import Demand, stack
from trimtab.predict.cost.step_time import StepTime, step_time

Make = Callable[..., Model]
GPU = PeakRates(conv_peak=400e12, matmul_peak=60e12, full_peak=400e12, bandwidth=3e12)
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
devices = st.builds(PeakRates, rate, rate, rate, rate)


@given(demands, devices, constants)
def test_the_parts_add_up_and_none_is_negative(ask: Demand, device: PeakRates, fitted: StepConstants) -> None:
    time = step_time(ask, device, fitted)
    parts = [time.launch, time.compute, time.traffic, time.update]
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(time.total, rel=1e-9)


@given(demands, devices, constants, st.sampled_from(WORK), st.floats(1.0, 1e3), amount)
def test_more_work_never_makes_a_step_faster(
    ask: Demand, device: PeakRates, fitted: StepConstants, name: str, factor: float, more: float
) -> None:
    larger = replace(ask, **{name: getattr(ask, name) * factor + more})
    assert step_time(larger, device, fitted).total >= step_time(ask, device, fitted).total * (1 - 1e-12)


@given(demands, devices, constants, st.sampled_from([f.name for f in fields(PeakRates)]))
def test_twice_the_peak_or_bandwidth_is_never_slower(
    ask: Demand, device: PeakRates, fitted: StepConstants, name: str
) -> None:
    better = replace(device, **{name: 2 * getattr(device, name)})
    assert step_time(ask, better, fitted).total <= step_time(ask, device, fitted).total * (1 + 1e-12)


@given(demands, devices, constants)
def test_a_step_takes_at_least_as_long_as_its_launches(
    ask: Demand, device: PeakRates, fitted: StepConstants
) -> None:
    alone = step_time(replace(ask, **dict.fromkeys(AMOUNTS, 0.0)), device, fitted)
    least = fitted.step_launch * (1.0 if ask.training else fitted.inference_step_launch)
    assert alone.total == pytest.approx(least)
    assert (alone.compute, alone.traffic, alone.update) == (0.0, 0.0, 0.0)
    assert step_time(ask, device, fitted).total >= least * (1 - 1e-12)


@given(st.lists(demands, min_size=1, max_size=5), devices, constants)
def test_arrays_and_scalars_agree(asks: list[Demand], device: PeakRates, fitted: StepConstants) -> None:
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
        ("attention_flop", 60e12, 1 / 0.40),
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
        ("forward_conv_calls", 90e-6),
        ("forward_matmul_calls", 50e-6),
        ("forward_attention_calls", 90e-6),
        ("forward_recurrent_calls", 400e-6),
        ("forward_other_calls", 50e-6),
        ("forward_small_calls", 10e-6),
        ("backward_conv_calls", 45e-6),
        ("backward_matmul_calls", 25e-6),
        ("backward_attention_calls", 45e-6),
        ("backward_recurrent_calls", 200e-6),
        ("backward_other_calls", 25e-6),
        ("backward_small_calls", 5e-6),
    ],
)
@pytest.mark.parametrize(
    ("training", "half", "factor"), [(1, 0, 1.0), (0, 0, 0.55), (1, 1, 1.25), (0, 1, 0.6875)]
)
def test_calls_far_beyond_the_work_cost_their_launches(
    name: str, launch: float, training: float, half: float, factor: float
) -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=training, half=half)
    constants = StepConstants(kernel_floor=0.0, backward_launch=0.5)
    total = step_time(replace(nothing, **{name: 1e6}), GPU, constants).total
    assert total == pytest.approx(1e-4 + 1e6 * launch * factor)


def test_inference_has_launch_constants_of_its_own() -> None:
    nothing = Demand(**dict.fromkeys(AMOUNTS, 0.0), training=0.0, half=1.0)
    fitted = StepConstants(inference_step_launch=0.2, inference_half_launch=1.1, kernel_floor=0.0)
    calls = 1e6 * 90e-6 * 0.55 * 1.25 * 1.1
    assert step_time(nothing, GPU, fitted).total == pytest.approx(0.2 * 1e-4)
    assert step_time(replace(nothing, forward_conv_calls=1e6), GPU, fitted).total == pytest.approx(
        0.2e-4 + calls
    )
    training = replace(nothing, training=1.0, forward_conv_calls=1e6)
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


Make = Callable[..., Model]


@given(cores=st.floats(0.1, 256), more=st.floats(0, 256), batch=st.integers(1, 1024))
def test_more_cores_are_never_slower(make_model: Make, cores: float, more: float, batch: int) -> None:
    ask = demand_of(make_model(rnn=2), float(batch))
    assert cpu_step_time(ask, cores + more).total <= cpu_step_time(ask, cores).total


@given(cores=st.floats(0.1, 256), batch=st.integers(1, 1024))
def test_twice_the_cores_are_less_than_twice_as_fast(make_model: Make, cores: float, batch: int) -> None:
    ask = demand_of(make_model(), float(batch))
    assert cpu_step_time(ask, 2 * cores).total > cpu_step_time(ask, cores).total / 2


@given(cores=st.floats(0.1, 256), batch=st.integers(1, 1024))
def test_the_parts_add_up(make_model: Make, cores: float, batch: int) -> None:
    time = cpu_step_time(demand_of(make_model(rnn=1), float(batch)), cores)
    assert time.launch + time.compute + time.traffic + time.update == pytest.approx(time.total)
    assert min(time.launch, time.compute, time.traffic, time.update) > 0


@given(batch=st.integers(1, 1024), more=st.integers(0, 1024))
def test_a_larger_batch_is_never_faster(make_model: Make, batch: int, more: int) -> None:
    times = cpu_step_time(demand_of(make_model(), np.array([batch, batch + more], float)), 4.0)
    assert times.total[0] <= times.total[1]


def test_everything_a_step_asks_for_takes_its_time(make_model: Make) -> None:
    # A trace does not tell attention's FLOP from those of other products.
    ask = replace(demand_of(make_model(attention=3, rnn=2), 8.0), attention_flop=1e9)
    # Marks of kernels that are slow on accelerators, no work of their own.
    left_out = {"grouped_flop", "conv_weight_bytes", "training", "half"}
    for f in fields(ask):
        more = cpu_step_time(replace(ask, **{f.name: 2.0 * getattr(ask, f.name)}), 4.0).total
        assert (more > cpu_step_time(ask, 4.0).total) == (f.name not in left_out)


def test_dispatching_is_not_shared_by_the_cores_and_the_rest_is(make_model: Make) -> None:
    ask = demand_of(make_model(), 8.0)
    shared = CpuConstants(compute_parallel=1.0, traffic_parallel=1.0)
    one, many = (cpu_step_time(ask, n, shared) for n in (1.0, 8.0))
    assert many.launch == one.launch
    for part in ("compute", "traffic", "update"):
        assert getattr(many, part) == pytest.approx(getattr(one, part) / 8)


def test_many_sizes_of_machine_at_once(make_model: Make) -> None:
    ask, cores = demand_of(make_model(), 8.0), np.array([1.0, 2.0, 96.0])
    at_once = np.asarray(cpu_step_time(ask, cores).total).tolist()
    assert at_once == pytest.approx([float(cpu_step_time(ask, float(n)).total) for n in cores])


KINDS = np.array(["embedding", "norm", "matmul", "attention", "matmul", "elementwise", "conv", "view"])


def _hardware(name: str) -> Hardware:
    facts = accelerator(name)
    return Hardware(facts.name, facts.peak, facts.memory_bandwidth)


def _operations(samples: float = 8.0) -> Operations:
    work = np.array([0, 0, 4e9, 1e9, 4e9, 0, 6e9, 0]) * samples
    return Operations(KINDS, np.ones(8), work, np.full(8, 4e6) * samples, np.full(8, 2e7) * (work > 0))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["H200", "A100", "T4"])
def test_every_operation_takes_time_and_more_samples_take_more(name: str, precision: str) -> None:
    few, many = (operation_times(_operations(n), _hardware(name), precision) for n in (8.0, 64.0))
    for passes in ((few.forward, many.forward), (few.backward, many.backward)):
        assert (passes[0][:-1] > 0).all()
        assert 2 * passes[0].sum() < passes[1].sum() < 8 * passes[0].sum()
    assert few.low < 1 < few.high


def test_the_backward_pass_takes_about_twice_the_forward_pass() -> None:
    times = operation_times(_operations(64.0), _hardware("H200"), "bf16")
    assert 1.5 < times.backward.sum() / times.forward.sum() < 4.0


def test_inference_has_no_backward_pass_and_launches_less() -> None:
    training = operation_times(_operations(), _hardware("H200"), "fp32")
    inference = operation_times(_operations(), _hardware("H200"), "fp32", training=False)
    assert inference.backward.sum() == inference.update.sum() == inference.once.sum() == 0.0
    assert inference.forward.sum() < training.forward.sum()


def test_faster_devices_take_less() -> None:
    seconds = [
        operation_times(_operations(64.0), _hardware(n), "fp16").forward.sum() for n in ("T4", "V100", "H200")
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_cores_share_the_work_of_a_cpu() -> None:
    one, four = (operation_times(_operations(), Hardware("cpu", {}, 0.0, n), "fp32") for n in (1.0, 4.0))
    assert 2.0 < one.forward.sum() / four.forward.sum() < 4.0
    parallel = cpu_calibration().constants.traffic_parallel
    assert four.update == pytest.approx(one.update * (1 - parallel + parallel / 4))
    assert one.total > four.total


def test_a_device_nobody_measured_borrows_constants_with_a_wider_range() -> None:
    known, other = (operation_times(_operations(), _hardware(n), "fp32") for n in ("H200", "T4"))
    unknown = operation_times(_operations(), Hardware("mine", {"fp32": 1e13}, 1e12), "fp32")
    assert other.high / other.low > known.high / known.low
    assert unknown.forward.sum() > 0
