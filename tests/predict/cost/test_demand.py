from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import Model, Operators
from trimtab.predict import demand_of
from trimtab.predict.cost.demand import Demand, stack

Make = Callable[..., Model]
batches = st.integers(1, 4096)
CALLS = [f.name for f in fields(Demand) if f.name.endswith("_calls")]
BYTES = [f.name for f in fields(Demand) if f.name.endswith("_bytes")]
FLOP = ["conv_flop", "matmul_flop", "attention_flop", "grouped_flop"]


def _all(ask: Demand) -> dict[str, float]:
    return {f.name: float(getattr(ask, f.name)) for f in fields(Demand)}


@given(batch=batches)
def test_arithmetic_is_proportional_to_the_batch(make_model: Make, batch: int) -> None:
    model = make_model(attention=5, rnn=2, step_flop_per_sample=8e9)
    one, many = _all(demand_of(model, 1.0)), _all(demand_of(model, float(batch)))
    assert many["conv_flop"] + many["matmul_flop"] == pytest.approx(3 * 2e9 * batch)
    assert many["grouped_flop"] == pytest.approx(batch * one["grouped_flop"])


@given(batch=batches)
def test_traffic_is_a_line_in_the_batch_and_calls_are_constant(make_model: Make, batch: int) -> None:
    model = make_model(attention=5, rnn=2)
    one, two, many = (_all(demand_of(model, b)) for b in (1.0, 2.0, float(batch)))
    for name in BYTES:
        assert many[name] == pytest.approx(one[name] + (batch - 1) * (two[name] - one[name]))
    assert {n: many[n] for n in CALLS} == {n: one[n] for n in CALLS}


def test_every_operator_is_counted_under_its_kind(make_model: Make) -> None:
    operators = (
        Operators("forward", "conv", 2, 100.0, 10.0, 4.0),
        Operators("backward", "conv", 3, 200.0, 20.0, 8.0),
        Operators("forward", "matmul", 5, 1.0, 7.0, 3.0),
        Operators("forward", "attention", 7, 2.0, 5.0, 3.0),
        Operators("backward", "norm", 11, 3.0, 6.0, 3.0),
        Operators("forward", "embedding", 13, 4.0, 8.0, 3.0),
        Operators("forward", "copy", 17, 5.0, 9.0, 3.0),
        Operators("backward", "rnn", 19, 6.0, 11.0, 3.0),
        Operators("forward", "elementwise", 23, 1e9, 1e9, 12.0),
        Operators("forward", "view", 29, 1e9, 1e9, 1e9),
        Operators("optimizer", "elementwise", 31, 1e9, 1e9, 1e9),
    )
    ask = demand_of(make_model(operators=operators, parameters=100), 10.0)
    assert _all(ask) | dict.fromkeys(FLOP, 0.0) == dict.fromkeys(FLOP, 0.0) | {
        "forward_conv_calls": 2.0,
        "backward_conv_calls": 3.0,
        "forward_matmul_calls": 5.0,
        "backward_matmul_calls": 0.0,
        "forward_attention_calls": 7.0,
        "backward_attention_calls": 0.0,
        "forward_recurrent_calls": 0.0,
        "backward_recurrent_calls": 19.0,
        "forward_other_calls": 13.0,
        "backward_other_calls": 11.0,
        "forward_small_calls": 46.0,
        "backward_small_calls": 0.0,
        "conv_weight_bytes": 50.0,
        "forward_conv_bytes": 200.0,
        "backward_conv_bytes": 400.0,
        "forward_matmul_bytes": 71.0 + 52.0,
        "backward_matmul_bytes": 0.0,
        "forward_light_bytes": 2 * 12.0 * 10,
        "backward_light_bytes": 63.0,
        "copied_bytes": 84.0 + 95.0,
        "recurrent_bytes": 116.0,
        "updated_bytes": 400.0,
        "training": 1.0,
        "half": 0.0,
    }


@given(batch=batches, attention=st.integers(0, 9), rnn=st.integers(0, 3))
def test_inference_asks_for_less_than_training(
    make_model: Make, batch: int, attention: int, rnn: int
) -> None:
    model = make_model(attention=attention, rnn=rnn)
    training, inference = (_all(demand_of(model, float(batch), t)) for t in (True, False))
    assert (training.pop("training"), inference.pop("training")) == (1.0, 0.0)
    assert all(inference[name] <= training[name] for name in training)
    assert inference["updated_bytes"] == inference["backward_conv_bytes"] == 0.0
    assert inference["conv_flop"] + inference["matmul_flop"] == pytest.approx(2e9 * batch)


@pytest.mark.parametrize(("precision", "half"), [("fp32", 0.0), ("tf32", 0.0), ("fp16", 1.0), ("bf16", 1.0)])
def test_sixteen_bit_products_are_flagged(make_model: Make, precision: str, half: float) -> None:
    assert demand_of(make_model(), 8.0, True, precision).half == half
    assert demand_of(make_model(precision=precision), 8.0).half == half


def test_flop_beyond_three_forward_passes_mark_grouped_convolutions(make_model: Make) -> None:
    grouped = demand_of(make_model(flop=1e9, step_flop_per_sample=5e9), 4.0)
    assert grouped.grouped_flop == pytest.approx(8e9)
    assert grouped.conv_flop + grouped.matmul_flop == pytest.approx(12e9)
    plain = demand_of(make_model(flop=1e9, step_flop_per_sample=2.5e9), 4.0)
    assert plain.grouped_flop == 0.0
    assert plain.conv_flop + plain.matmul_flop == pytest.approx(10e9)


@pytest.mark.parametrize(
    ("products", "share"), [({"conv": 0, "matmul": 5}, 0.0), ({"conv": 5, "matmul": 0}, 1.0)]
)
def test_arithmetic_belongs_to_the_products_there_are(
    make_model: Make, products: dict[str, int], share: float
) -> None:
    ask = demand_of(make_model(**products), 4.0)
    assert ask.conv_flop == pytest.approx(share * 24e9)
    assert ask.matmul_flop == pytest.approx((1 - share) * 24e9)


def test_a_model_without_any_product_asks_for_finite_amounts(make_model: Make) -> None:
    ask = demand_of(make_model(conv=0, matmul=0), 4.0)
    assert np.isfinite(list(_all(ask).values())).all()
    assert ask.conv_flop == 0.0


def test_many_batches_at_once_equal_each_by_itself(make_model: Make) -> None:
    model, sizes = make_model(rnn=1), np.array([1.0, 7.0, 64.0])
    at_once = demand_of(model, sizes)
    for row, size in enumerate(sizes):
        alone = demand_of(model, float(size))
        for f in fields(Demand):
            assert np.broadcast_to(getattr(at_once, f.name), 3)[row] == pytest.approx(getattr(alone, f.name))


def test_stacked_demands_keep_their_rows(make_model: Make) -> None:
    one = demand_of(make_model(), 4.0)
    two = demand_of(make_model(conv=0), np.array([2.0, 3.0]), False, "bf16")
    wide = replace(two, **{f.name: np.broadcast_to(getattr(two, f.name), 2) for f in fields(Demand)})
    both = stack([one, wide])
    for f in fields(Demand):
        expected = [getattr(one, f.name), *getattr(wide, f.name)]
        assert getattr(both, f.name).tolist() == expected
