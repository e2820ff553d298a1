"""A model spread over devices: what each computes, keeps and waits for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import Model, Parallelism, Profile
from trimtab.predict import (
    SHARDINGS,
    AnalyticEstimator,
    Layouts,
    Placements,
    StepEstimates,
    blocks_of,
    kept_shares,
)

MakeModel = Callable[..., Model]
MakeProfile = Callable[..., Profile]
Place = Callable[..., Placements]
PARTS = ("launch", "compute", "traffic", "update", "network", "input")


@pytest.fixture(scope="module")
def estimate(make_model: MakeModel, make_profile: MakeProfile, place: Place) -> Callable[..., StepEstimates]:
    """Estimates of a large model of blocks on eight A100 each, one row per layout."""
    model = make_model(conv=0, matmul=80, flop=1e13, parameters=2_000_000_000, saved_sample_bytes=4e9)
    norms = [o for o in make_model(conv=33).operators if o.kind == "norm"]
    model = replace(model, operators=(*model.operators, *norms))
    profile = make_profile(model, batch_size=8)

    def of(*layouts: Parallelism, **where: Any) -> StepEstimates:
        row = {"device": "A100", "per_node": 8, "batch": 8, "network": 5e10, **where}
        placements = replace(place(*[row] * len(layouts)), layouts=Layouts.of(list(layouts)))
        return AnalyticEstimator(profile, "bf16").estimate(placements)

    return of


def test_only_models_of_products_and_normalizations_are_divided(make_model: MakeModel) -> None:
    assert blocks_of(make_model(conv=20)) is None
    assert blocks_of(make_model(conv=0, rnn=2)) is None


def test_each_level_of_sharding_keeps_less(estimate: Callable[..., StepEstimates]) -> None:
    result = estimate(*(Parallelism(name) for name in SHARDINGS))
    assert (np.diff(result.memory) < 0).all()
    plain, last = kept_shares("none", 8), kept_shares("full", 8)
    assert (plain, last) == ((1.0, 1.0, 1.0), (0.125, 0.125, 0.125))


def test_checkpointing_trades_time_for_memory(estimate: Callable[..., StepEstimates]) -> None:
    result = estimate(Parallelism("full"), Parallelism("full", recompute=True))
    assert result.memory[1] < result.memory[0]
    assert result.compute[1] == pytest.approx(result.compute[0] * 4 / 3)


def test_adapters_train_little_and_keep_little(estimate: Callable[..., StepEstimates]) -> None:
    result = estimate(Parallelism(recompute=True), Parallelism(recompute=True, adapter_rank=16))
    assert result.memory[1] < 0.6 * result.memory[0]
    assert result.compute[1] == pytest.approx(result.compute[0] * 2 / 3)
    assert result.update[1] < 0.1 * result.update[0]


def test_an_8_bit_optimizer_keeps_a_quarter_of_the_state(estimate: Callable[..., StepEstimates]) -> None:
    result = estimate(Parallelism(recompute=True), Parallelism(recompute=True, eight_bit_optimizer=True))
    state = 4.0 * 2_000_000_000  # of momentum in fp32
    assert result.memory[0] - result.memory[1] == pytest.approx(0.75 * state)


def test_more_microbatches_leave_a_smaller_bubble(estimate: Callable[..., StepEstimates]) -> None:
    few, many = (Parallelism(pipeline=4, microbatches=count) for count in (2, 8))
    result = estimate(few, many)
    # Stages work M of M + p - 1 turns: two of five, and eight of eleven.
    assert result.compute[1] / result.compute[0] == pytest.approx((11 / 8) / (5 / 2), rel=0.2)


def test_shared_products_wait_for_sums(estimate: Callable[..., StepEstimates]) -> None:
    result = estimate(Parallelism(recompute=True), Parallelism(tensor=8, recompute=True))
    assert result.compute[1] < result.compute[0] / 4
    assert result.launch[1] > result.launch[0] / 2, "every device launches every operator"
    assert result.network[1] > 0


@given(
    sharding=st.sampled_from(SHARDINGS),
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4]),
    microbatches=st.sampled_from([1, 2, 4, 8]),
    recompute=st.booleans(),
    nodes=st.sampled_from([1, 2, 16, 64]),
)
def test_parts_add_up_and_no_device_exceeds_its_peak(
    estimate: Callable[..., StepEstimates],
    sharding: str,
    tensor: int,
    pipeline: int,
    microbatches: int,
    recompute: bool,
    nodes: int,
) -> None:
    layout = Parallelism(sharding, tensor, pipeline, microbatches, recompute)
    result = estimate(layout, nodes=nodes)
    parts = np.array([getattr(result, name)[0] for name in PARTS])
    assert (parts >= 0).all()
    assert parts.sum() == pytest.approx(result.total[0])
    assert 3e13 * 8 / (tensor * pipeline) / (result.total[0] * result.low[0]) <= 312e12 * (1 + 1e-9)
    assert result.memory[0] > 0
