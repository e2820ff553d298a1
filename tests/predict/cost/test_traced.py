"""Totals of traced calls, and the laws that turn them into seconds."""

from dataclasses import fields, replace

import numpy as np
import pytest

from trimtab.catalog import Accelerator, accelerator, accelerators
from trimtab.core import BadInputError, Model, OperatorCall
from trimtab.predict import TracedModel, TracedRows, shipped_traced, traced_demand
from trimtab.predict.cost.traced import TRACED_COLUMNS, Laws, traced_total
from trimtab.predict.cost.traced_fit import (
    FittedLaws,
    TracedRanges,
    fit_laws,
    learn_ranges,
    learn_traced,
    network_kind,
    parse_traced,
    traced_data,
    traced_rows,
)
from trimtab.predict.tables import join_rows

BATCH = 8


def product(phase: str, m: int, n: int, k: int, scales: str = "m", calls: float = 1.0) -> OperatorCall:
    """A matrix product in fp32, whose second factor is a weight if `scales` is m."""
    fixed = 4.0 * n * k if scales == "m" else 4.0 * m * n
    sizes = {"batch": 1, "m": m, "n": n, "k": k}
    read, written = 4.0 * (m * k + k * n), 4.0 * m * n
    return OperatorCall(
        phase, "mm", "matmul", "float32", calls, 2.0 * m * n * k, read, written, fixed, sizes, scales
    )


def convolution(groups: int = 1, window: int = 9) -> OperatorCall:
    sizes = {
        "batch": BATCH, "in_channels": 64, "out_channels": 64, "groups": groups, "in_pixels": 784,
        "out_pixels": 784, "kernel": window, "stride": 1,
    }  # fmt: skip
    flop = 2.0 * BATCH * 784 * 64 * 64 / groups * window
    moved = 4.0 * BATCH * 784 * 64
    weights = 4.0 * 64 * 64 / groups * window
    return OperatorCall(
        "forward",
        "convolution",
        "conv",
        "float32",
        1.0,
        flop,
        moved + weights,
        moved,
        weights,
        sizes,
        "batch",
    )


def network(*calls: OperatorCall) -> Model:
    return Model(
        parameters=10_000_000,
        parameter_bytes=40e6,
        buffer_bytes=0.0,
        modules=20,
        layers=(),
        optimizer="SGD",
        optimizer_state_bytes=0.0,
        precision="fp32",
        forward_flop_per_sample=1e9,
        step_flop_per_sample=3e9,
        saved_fixed_bytes=0.0,
        saved_sample_bytes=0.0,
        calls=calls,
        traced_batch=BATCH,
    )


MLP = network(
    product("forward", BATCH, 4096, 4096, calls=10),
    product("backward", BATCH, 4096, 4096, calls=10),
    product("backward", 4096, 4096, BATCH, scales="k", calls=10),
)


def steps(
    model: Model, device: Accelerator, batches: list[float], precision: str = "fp32", training: bool = True
) -> TracedRows:
    index = np.zeros(len(batches), dtype=np.intp)
    return traced_rows(traced_demand(model), np.array(batches), [device], index, precision, training)


def seconds(model: Model, device: Accelerator, batches: list[float], precision: str = "fp32") -> list[float]:
    laws = TracedModel(FittedLaws(Laws(), {}, {}))
    return laws.seconds(steps(model, device, batches, precision)).tolist()


def test_flop_and_results_of_a_product_grow_with_the_batch_and_its_weights_do_not() -> None:
    demand = traced_demand(MLP)
    small, large = (demand.at(np.array([b]), True) for b in (1.0, 100.0))
    for name in ("forward_matmul_flop", "backward_matmul_flop", "forward_matmul_results"):
        assert traced_total(large, name)[0] == pytest.approx(100 * traced_total(small, name)[0])
    assert traced_total(small, "forward_matmul_flop")[0] == pytest.approx(10 * 2.0 * 4096 * 4096)
    # The gradient of the weights: its depth grows, its results do not.
    gradient = 10 * 2.0 * 4096 * 4096
    passed_on = traced_total(large, "backward_matmul_results")[0] - gradient
    assert passed_on == pytest.approx(100 * 10 * 2.0 * 4096)
    weights = 10 * 4.0 * 4096 * 4096
    assert traced_total(small, "forward_matmul_bytes")[0] == pytest.approx(weights + 10 * 4.0 * 2 * 4096)


def test_inference_has_no_backward_pass() -> None:
    totals = traced_demand(MLP).at(np.array([4.0]), False)
    assert not any(traced_total(totals, name)[0] for name in TRACED_COLUMNS if name.startswith("backward"))


def test_convolutions_are_told_apart_by_window_and_groups() -> None:
    for call, category in (
        (convolution(), "winograd"),
        (convolution(window=1), "pointwise"),
        (convolution(window=25), "window"),
        (convolution(groups=64), "grouped"),
    ):
        totals = traced_demand(network(call)).at(np.array([float(BATCH)]), True)
        assert traced_total(totals, f"forward_{category}_flop")[0] == pytest.approx(call.flop)


def test_a_transpose_moves_nothing() -> None:
    call = OperatorCall("forward", "transpose", "copy", "float32", 3.0, 0.0, 1e9, 1e9, 0.0, {}, "elements")
    totals = traced_demand(network(call)).at(np.array([1.0]), True)
    assert traced_total(totals, "forward_copy_bytes")[0] == 0
    assert traced_total(totals, "forward_view_calls")[0] == 3


def test_bytes_of_a_run_in_16_bits_count_as_in_fp32() -> None:
    full = product("forward", BATCH, 64, 64)
    half = replace(
        full,
        dtype="bfloat16",
        read_bytes=full.read_bytes / 2,
        written_bytes=full.written_bytes / 2,
        fixed_bytes=full.fixed_bytes / 2,
    )
    totals = [traced_demand(network(call)).at(np.array([3.0]), True) for call in (full, half)]
    assert totals[0][0].tolist() == pytest.approx(totals[1][0].tolist())


def test_more_samples_take_longer_but_not_less_than_in_proportion_below_saturation() -> None:
    for device in accelerators():
        one, many = seconds(MLP, device, [1.0, 512.0], "bf16")
        assert 0 < one < many < 512 * one


def test_tensor_cores_need_a_number_format_that_they_have() -> None:
    batches = [8192.0]
    fp32, tf32, bf16 = (seconds(MLP, accelerator("A100"), batches, f)[0] for f in ("fp32", "tf32", "bf16"))
    assert fp32 > tf32 > bf16
    assert seconds(MLP, accelerator("V100"), batches, "tf32") == seconds(MLP, accelerator("V100"), batches)


def test_parts_of_a_step_add_up() -> None:
    model = TracedModel(FittedLaws(Laws(), {}, {}))
    step = model.step(steps(MLP, accelerator("T4"), [1.0, 64.0]))
    parts = sum(np.asarray(getattr(step, name)) for name in ("launch", "compute", "traffic", "update"))
    assert np.asarray(parts).tolist() == pytest.approx(np.asarray(step.total).tolist())


def measured(device: str, factors: dict[str, float], source: str = "lab") -> TracedRows:
    """Rows of a device whose truth follows the laws with these factors."""
    rows = []
    for architecture, model in (("mlp", MLP), ("cnn", network(convolution(), convolution(window=1)))):
        for precision in ("fp32", "bf16"):
            found = steps(model, accelerator(device), [1.0, 16.0, 256.0, 2048.0], precision)
            truth = FittedLaws(Laws(), {device: factors}, {}).times(found).step.total
            rows.append(
                replace(
                    found,
                    seconds=np.asarray(truth),
                    architecture=np.full(len(found.seconds), f"{architecture}{precision}"),
                    source=np.full(len(found.seconds), source),
                )
            )
    return join_rows(*rows)


def test_the_fit_finds_a_device_that_is_slower_than_its_data_sheet() -> None:
    slow = {"tensor": -0.3, "vector": -0.3, "bandwidth": -0.3, "host": 0.0}
    usual = dict.fromkeys(slow, 0.0)
    rows = join_rows(measured("A100", slow), measured("V100", usual), measured("T4", usual))
    fitted = fit_laws(rows)
    error = np.abs(np.log(np.asarray(fitted.times(rows).step.total) / rows.seconds))
    assert np.median(error) < 0.05
    assert fitted.factors["A100"]["bandwidth"] < min(fitted.factors[d]["bandwidth"] for d in ("V100", "T4"))


def test_a_device_without_measurements_has_wider_ranges() -> None:
    rows = join_rows(
        *(measured(d, dict.fromkeys(("tensor", "vector", "bandwidth", "host"), 0.0)) for d in ("A100", "T4"))
    )
    errors = np.random.default_rng(0).normal(0, 0.1, len(rows.seconds))
    ranges = learn_ranges(rows, errors, 4 * errors)
    seen, unseen = ranges.of("A100", "train"), ranges.of("H100", "train")
    assert unseen[0] < seen[0] <= 1 <= seen[1] < unseen[1]


def test_ranges_always_hold_the_estimate_itself() -> None:
    ranges = TracedRanges({"T4|train": 0.1}, {"train": (0.2, 0.4)}, {})
    low, high = ranges.of("T4", "train")
    assert low == 1.0 < high


def test_plain_data_keep_the_model() -> None:
    zero = dict.fromkeys(("tensor", "vector", "bandwidth", "host"), 0.0)
    rows = join_rows(measured("A100", zero), measured("T4", zero))
    learned = learn_traced(rows, rounds=2)
    errors = np.log(rows.seconds / learned.seconds(rows))
    model = replace(learned, ranges=learn_ranges(rows, errors, errors))
    again = parse_traced(traced_data(model))
    assert again.seconds(rows).tolist() == pytest.approx(model.seconds(rows).tolist(), rel=0.02)
    broken = traced_data(model)
    broken["laws"] = {**broken["laws"], "no such constant": 1.0}
    with pytest.raises(BadInputError, match="no such constant"):
        parse_traced(broken)


def test_shipped_laws_are_physical_and_say_what_they_rest_on() -> None:
    model = shipped_traced()
    assert model is not None
    assert model.ranges is not None
    assert model.similar is not None
    for constant in fields(Laws):
        assert 0 < getattr(model.fitted.laws, constant.name) < np.inf
    for device in ("H200", "RTX-3090", "V100"):
        assert accelerator(device).evidence
        assert device in model.fitted.factors
    assert "measured by Trimtab" in accelerator("H200").rests_on
    assert "prior only" in accelerator("TPU-v5e").rests_on
    for device in accelerators():
        low, high = model.ranges.of(device.name, "train")
        assert 0.2 < low < 1 < high < 5


def test_kinds_of_networks() -> None:
    device = accelerator("T4")
    kinds = [
        network_kind(steps(network(call), device, [1.0]))[0]
        for call in (convolution(), convolution(groups=64), product("forward", BATCH, 64, 64))
    ]
    assert kinds == ["convolution", "grouped", "transformer"]
