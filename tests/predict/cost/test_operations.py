"""Seconds of single operations add up to what the whole step is estimated at, and behave as they should."""

import numpy as np
import pytest

from trimtab.catalog import accelerator
from trimtab.predict import Hardware, Operations, operation_times

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
    assert inference.backward.sum() == inference.update == 0.0
    assert inference.forward.sum() < training.forward.sum()


def test_faster_devices_take_less() -> None:
    seconds = [
        operation_times(_operations(64.0), _hardware(n), "fp16").forward.sum() for n in ("T4", "V100", "H200")
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_cores_share_the_work_of_a_cpu() -> None:
    one, four = (operation_times(_operations(), Hardware("cpu", {}, 0.0, n), "fp32") for n in (1.0, 4.0))
    assert 2.5 < one.forward.sum() / four.forward.sum() < 4.0
    assert one.update == pytest.approx(four.update * 4**0.88)


def test_a_device_nobody_measured_borrows_constants_with_a_wider_range() -> None:
    known, other = (operation_times(_operations(), _hardware(n), "fp32") for n in ("H200", "T4"))
    unknown = operation_times(_operations(), Hardware("mine", {"fp32": 1e13}, 1e12), "fp32")
    assert other.high / other.low > known.high / known.low
    assert unknown.forward.sum() > 0
