from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.catalog import accelerator, accelerators
from trimtab.core import BadInputError, Model, Profile
from trimtab.predict import AnalyticEstimator, Placements, ScaleOutAssumptions, StepEstimates, calibration
from trimtab.predict.cost.scale_out import all_reduce_seconds, exposed_seconds

MakeModel = Callable[..., Model]
MakeProfile = Callable[..., Profile]
Place = Callable[..., Placements]
PARTS = ("launch", "compute", "traffic", "update", "network", "input")
MIXED: list[dict[str, Any]] = [
    {"device": "H200"},
    {"device": None, "cores": 16},
    {"device": "Abacus-9000"},
    {"device": "A100", "per_node": 8, "nodes": 2, "cores": 96, "network": 1e10},
    {"device": None, "nodes": 4},
    {"device": "TPU-v4", "batch": 64},
]


def _row(found: StepEstimates, row: int) -> dict[str, float]:
    return {f.name: getattr(found, f.name)[row].item() for f in fields(found)}


def test_gpus_cpus_and_an_unknown_accelerator_in_one_call(make_profile: MakeProfile, place: Place) -> None:
    found = AnalyticEstimator(make_profile(input_wait=0.05)).estimate(place(*MIXED))
    assert found.known.tolist() == [True, True, False, True, True, True]
    assert found.measured.tolist()[:2] == [True, True]
    assert not found.measured[3]
    for column in (getattr(found, f.name) for f in fields(found)):
        assert column.shape == (len(MIXED),)
        assert np.isfinite(column).all()
    assert (found.total > 0).all()


def test_each_placement_is_estimated_as_if_it_were_alone(make_profile: MakeProfile, place: Place) -> None:
    estimator = AnalyticEstimator(make_profile(input_wait=0.2, loader_workers=2))
    together = estimator.estimate(place(*MIXED))
    for row, where in enumerate(MIXED):
        assert _row(together, row) == pytest.approx(_row(estimator.estimate(place(where)), 0))


placements = st.fixed_dictionaries(
    {
        "device": st.sampled_from([None, *(a.name for a in accelerators())]),
        "per_node": st.integers(1, 16),
        "nodes": st.integers(1, 64),
        "cores": st.integers(1, 256),
        "memory": st.floats(1e9, 1e12),
        "network": st.floats(1e8, 1e11),
        "batch": st.integers(1, 8192),
    }
)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(placements, min_size=1, max_size=5),
    gpu=st.sampled_from([None, "H200", "T4"]),
    precision=st.sampled_from(["fp32", "tf32", "fp16", "bf16"]),
    wait=st.sampled_from([0.0, 0.001, 0.3]),
    loaders=st.integers(0, 8),
    conv=st.sampled_from([0, 20]),
)
def test_the_parts_add_up_to_the_total_and_none_is_negative(
    make_model: MakeModel,
    make_profile: MakeProfile,
    place: Place,
    rows: list[dict[str, Any]],
    gpu: str | None,
    precision: str,
    wait: float,
    loaders: int,
    conv: int,
) -> None:
    profile = make_profile(make_model(conv=conv), gpu=gpu, input_wait=wait, loader_workers=loaders)
    found = AnalyticEstimator(profile, precision).estimate(place(*rows))
    parts = np.array([getattr(found, p) for p in PARTS])
    assert (parts >= 0).all()
    assert parts.sum(axis=0).tolist() == pytest.approx(found.total.tolist())
    assert ((found.low <= 1) & (found.high >= 1) & (found.low > 0)).all()
    assert (found.memory > 0).all()


def test_the_network_costs_only_with_more_than_one_device(make_profile: MakeProfile, place: Place) -> None:
    shapes = [(1, 1), (2, 1), (1, 2), (8, 2)]
    rows = [{"device": d, "per_node": p, "nodes": n} for d in ("A100", None) for p, n in shapes]
    found = AnalyticEstimator(make_profile()).estimate(place(*rows))
    assert [seconds > 0 for seconds in found.network] == [False, True, True, True] * 2


def test_the_network_part_is_what_the_ring_leaves_exposed(make_profile: MakeProfile, place: Place) -> None:
    profile, assume = make_profile(), ScaleOutAssumptions(overlap=0.2)
    where = place({"device": "A100", "per_node": 8, "nodes": 3, "network": 2e9})
    found = AnalyticEstimator(profile, assume=assume).estimate(where)
    assert profile.model is not None
    link = accelerator("A100").interconnect.bandwidth
    reduce = all_reduce_seconds(profile.model.parameter_bytes, 8, 3, link, 2e9, assume)
    step = found.total[0] - found.network[0]
    assert found.network[0] == pytest.approx(exposed_seconds(reduce, step, assume))


def test_memory_is_held_against_what_is_usable(make_profile: MakeProfile, place: Place) -> None:
    where = place({"device": "T4"}, {"device": None, "memory": 10e9})
    found = AnalyticEstimator(make_profile()).estimate(where)
    assert found.memory_limit.tolist() == pytest.approx([0.94 * accelerator("T4").memory, 0.90 * 10e9])


def test_a_batch_that_is_too_large_exceeds_the_limit(make_profile: MakeProfile, place: Place) -> None:
    rows = [{"device": d, "batch": b} for d in ("T4", "H200") for b in (8, 1024)]
    found = AnalyticEstimator(make_profile()).estimate(place(*rows))
    assert (found.memory > found.memory_limit).tolist() == [False, True, False, False]


def test_a_cpu_needs_the_memory_that_the_run_needed(make_profile: MakeProfile, place: Place) -> None:
    profile = make_profile(memory=3e9, workers=2, batch_size=16)
    found = AnalyticEstimator(profile).estimate(place({"batch": 16}, {"batch": 32}, {"batch": 1}))
    assert found.memory[:2].tolist() == pytest.approx([1.5e9, 1.5e9 + 16 * 5e7])
    assert found.memory[2] == pytest.approx(1.5e9 - 15 * 5e7)


def test_a_cpu_needs_at_least_weights_gradients_and_optimizer_state(
    make_model: MakeModel, make_profile: MakeProfile, place: Place
) -> None:
    profile = make_profile(make_model(parameters=10**9), memory=1e9)
    assert AnalyticEstimator(profile).estimate(place({"batch": 1})).memory[0] == pytest.approx(12e9)


def test_the_range_is_the_calibration_s_and_narrower_where_the_run_was_made(
    make_profile: MakeProfile, place: Place
) -> None:
    where = place({"device": "H200"}, {"device": "A100"})
    elsewhere = AnalyticEstimator(make_profile()).estimate(where)
    for row, name in enumerate(("H200", "A100")):
        assert (elsewhere.low[row], elsewhere.high[row]) == calibration(accelerator(name)).time_error
    here = AnalyticEstimator(make_profile(gpu="H200")).estimate(where)
    assert elsewhere.low[0] < here.low[0] < 1 < here.high[0] < elsewhere.high[0]
    assert (here.low[1], here.high[1]) == (elsewhere.low[1], elsewhere.high[1])


def test_a_cpu_estimate_is_surer_after_a_run_on_a_cpu(make_profile: MakeProfile, place: Place) -> None:
    local, foreign = (AnalyticEstimator(make_profile(gpu=g)).estimate(place({})) for g in (None, "H200"))
    assert foreign.low[0] < local.low[0] < 1 < local.high[0] < foreign.high[0]
    assert (local.measured[0], foreign.measured[0]) == (True, False)


def test_loader_workers_that_kept_up_say_nothing_about_a_faster_device(
    make_profile: MakeProfile, place: Place
) -> None:
    profile = make_profile(seconds=[2.0], input_wait=0.001, loader_workers=4)
    found = AnalyticEstimator(profile).estimate(place({"device": "H200"}))
    assert found.input[0] == pytest.approx(0.001)


def test_loader_workers_that_were_late_hold_back_a_faster_device(
    make_profile: MakeProfile, place: Place
) -> None:
    # Four workers on four cores took 2 s for a batch, so that sixteen samples cost 8 s of one core.
    profile = make_profile(seconds=[2.0], input_wait=1.0, loader_workers=4, cores=4)
    where = place({"device": "H200", "cores": 64}, {"device": "H200", "cores": 2})
    found = AnalyticEstimator(profile).estimate(where)
    assert (found.total - found.network).tolist() == pytest.approx([2.0, 4.0])


def test_the_devices_of_a_node_share_its_cores_for_loading(make_profile: MakeProfile, place: Place) -> None:
    profile = make_profile(seconds=[2.0], input_wait=1.0, loader_workers=4, cores=4)
    found = AnalyticEstimator(profile).estimate(place({"device": "H200", "cores": 8, "per_node": 4}))
    assert found.total[0] - found.network[0] == pytest.approx(4.0)


def test_data_loaded_by_the_script_itself_costs_the_same_everywhere(
    make_profile: MakeProfile, place: Place
) -> None:
    profile = make_profile(seconds=[2.0], input_wait=0.5, batch_size=16)
    found = AnalyticEstimator(profile).estimate(place({"device": "H200"}, {"batch": 32}))
    assert found.input.tolist() == pytest.approx([0.5, 1.0])


def test_a_lower_precision_is_faster_and_smaller_on_tensor_cores(
    make_profile: MakeProfile, place: Place
) -> None:
    where = place({"device": "A100", "batch": 512})
    fp32, bf16 = (AnalyticEstimator(make_profile(), p).estimate(where) for p in ("fp32", "bf16"))
    assert bf16.total[0] < fp32.total[0]
    assert bf16.memory[0] < fp32.memory[0]


def test_the_run_s_precision_is_assumed_elsewhere(
    make_model: MakeModel, make_profile: MakeProfile, place: Place
) -> None:
    where = place({"device": "A100"})
    seen = AnalyticEstimator(make_profile(make_model(precision="bf16"))).estimate(where)
    asked = AnalyticEstimator(make_profile(make_model(precision="fp32")), "bf16").estimate(where)
    assert _row(seen, 0) == _row(asked, 0)


@pytest.mark.parametrize("name", [a.name for a in accelerators()])
def test_every_known_accelerator_gets_a_finite_step(
    make_profile: MakeProfile, place: Place, name: str
) -> None:
    found = AnalyticEstimator(make_profile()).estimate(place({"device": name}))
    assert found.known[0]
    assert 0 < found.total[0] < 1.0


def test_a_profile_without_a_model_is_refused(make_profile: MakeProfile) -> None:
    with pytest.raises(BadInputError, match="'resnet' has no facts about a model") as refusal:
        AnalyticEstimator(replace(make_profile(), model=None))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", [{"operators": ()}, {"forward_flop_per_sample": 0.0}])
def test_a_profile_without_a_traced_step_is_refused(
    make_model: MakeModel, make_profile: MakeProfile, missing: dict[str, Any]
) -> None:
    with pytest.raises(BadInputError, match="'resnet' has no traced step; profile it for longer") as refusal:
        AnalyticEstimator(make_profile(make_model(**missing)))
    assert "\n" not in str(refusal.value)
