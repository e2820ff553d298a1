from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import Model
from trimtab.predict.cost.constants import MemoryConstants
from trimtab.predict.cost.step_memory import memory_need, peak_memory

Make = Callable[..., Model]
precisions = st.sampled_from(["fp32", "tf32", "bf16", "fp16"])
batches = st.integers(1, 4096)


def _values(constant: Any) -> st.SearchStrategy[float]:
    return st.floats(constant.metadata["low"], constant.metadata["high"])


constants = st.builds(MemoryConstants, **{f.name: _values(f) for f in fields(MemoryConstants)})


def _peak(
    model: Model, batch: float, training: bool = True, precision: str = "fp32", left: float = 0.0
) -> float:
    return float(peak_memory(memory_need(model, batch, training, precision, left), MemoryConstants()))


@given(small=batches, more=batches, training=st.booleans(), precision=precisions, fitted=constants)
def test_a_larger_batch_never_needs_less(
    make_model: Make, small: int, more: int, training: bool, precision: str, fitted: MemoryConstants
) -> None:
    need = memory_need(make_model(), np.array([small, small + more], float), training, precision)
    less, greater = peak_memory(need, fitted)
    assert less <= greater


@given(batch=batches, precision=precisions)
def test_training_needs_at_least_what_inference_needs(make_model: Make, batch: int, precision: str) -> None:
    model = make_model()
    assert _peak(model, batch, True, precision) >= _peak(model, batch, False, precision)


def test_the_optimizer_state_counts_in_training_only(make_model: Make) -> None:
    without, with_state = (make_model(optimizer_state_bytes=b) for b in (0.0, 3e9))
    assert _peak(with_state, 8.0) - _peak(without, 8.0) == pytest.approx(3e9)
    assert _peak(with_state, 8.0, False) == _peak(without, 8.0, False)


def test_what_stays_allocated_from_before_counts(make_model: Make) -> None:
    assert _peak(make_model(), 8.0, False, left=1e9) - _peak(make_model(), 8.0, False) == pytest.approx(1e9)


def test_weights_and_buffers_count_in_both(make_model: Make) -> None:
    small, large = make_model(buffer_bytes=0.0), make_model(buffer_bytes=5e9)
    for training in (True, False):
        assert _peak(large, 8.0, training) - _peak(small, 8.0, training) == pytest.approx(5e9)


def test_of_gradients_and_activations_only_the_larger_counts(make_model: Make) -> None:
    large = make_model(parameters=10**9, saved_sample_bytes=1e6)
    assert _peak(large, 1.0) == pytest.approx(70e6 + 4e9 + 4e9 + 1e4 + 1.05 * 4e9)
    assert _peak(large, 2.0) == _peak(large, 1.0)
    deep = make_model(parameters=1000, saved_sample_bytes=1e9)
    assert _peak(deep, 20.0) - _peak(deep, 10.0) == pytest.approx(10e9, rel=0.02)


def test_activations_are_smaller_in_16_bit(make_model: Make) -> None:
    assert _peak(make_model(), 512.0, True, "bf16") < 0.8 * _peak(make_model(), 512.0, True, "fp32")


def test_the_run_s_own_precision_is_taken_where_none_is_asked_for(make_model: Make) -> None:
    assert memory_need(make_model(precision="bf16"), 8.0).half == 1.0
    assert memory_need(make_model(precision="bf16"), 8.0, precision="fp32").half == 0.0


@pytest.mark.parametrize("products", [{"conv": 0}, {"matmul": 0}, {"conv": 0, "matmul": 0}])
def test_a_model_without_some_or_any_products_needs_a_finite_amount(
    make_model: Make, products: dict[str, int]
) -> None:
    need = memory_need(make_model(**products), np.array([1.0, 8.0]))
    peaks = np.asarray(peak_memory(need, MemoryConstants()))
    assert peaks.shape == (2,)
    assert (peaks > 70e6).all()
    assert np.isfinite(peaks).all()


def test_arrays_and_scalars_agree(make_model: Make) -> None:
    sizes = np.array([1.0, 16.0, 300.0])
    at_once = np.asarray(peak_memory(memory_need(make_model(), sizes), MemoryConstants()))
    assert at_once.tolist() == pytest.approx([_peak(make_model(), float(size)) for size in sizes])
