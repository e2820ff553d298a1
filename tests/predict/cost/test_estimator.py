"""The local run corrects estimates for its own kind of device, and leaves the others alone."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.catalog import accelerator, accelerators
from trimtab.core import BadInputError, Model, OperatorCall, Profile, ThreadSteps
from trimtab.predict import (
    AnalyticEstimator,
    Placements,
    ScaleOutAssumptions,
    StepEstimates,
    calibration,
    restart_factor,
)
from trimtab.predict.cost.estimator import (
    Correction,
    correction_on,
    correction_on_cpu,
    input_seconds,
    least_on_cpu,
)
from trimtab.predict.cost.scale_out import all_reduce_seconds, exposed_seconds, straggler_factor

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


def _row(result: StepEstimates, row: int) -> dict[str, float]:
    return {f.name: getattr(result, f.name)[row].item() for f in fields(result)}


def test_gpus_cpus_and_an_unknown_accelerator_in_one_call(make_profile: MakeProfile, place: Place) -> None:
    result = AnalyticEstimator(make_profile(input_wait=0.05)).estimate(place(*MIXED))
    assert result.known.tolist() == [True, True, False, True, True, True]
    assert result.measured.tolist()[:2] == [True, True]
    assert not result.measured[3]
    for column in (getattr(result, f.name) for f in fields(result)):
        assert column.shape == (len(MIXED),)
        assert np.isfinite(column).all()
    assert (result.total > 0).all()


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
    result = AnalyticEstimator(profile, precision).estimate(place(*rows))
    parts = np.array([getattr(result, p) for p in PARTS])
    assert (parts >= 0).all()
    assert parts.sum(axis=0).tolist() == pytest.approx(result.total.tolist())
    assert ((result.low <= 1) & (result.high >= 1) & (result.low > 0)).all()
    assert (result.memory > 0).all()


def test_the_network_costs_only_with_more_than_one_device(make_profile: MakeProfile, place: Place) -> None:
    shapes = [(1, 1), (2, 1), (1, 2), (8, 2)]
    rows = [{"device": d, "per_node": p, "nodes": n} for d in ("A100", None) for p, n in shapes]
    result = AnalyticEstimator(make_profile()).estimate(place(*rows))
    assert [seconds > 0 for seconds in result.network] == [False, True, True, True] * 2


def test_the_network_part_is_what_the_ring_leaves_exposed(make_profile: MakeProfile, place: Place) -> None:
    profile, assume = make_profile(), ScaleOutAssumptions(overlap=0.2)
    where = place({"device": "A100", "per_node": 8, "nodes": 3, "network": 2e9})
    result = AnalyticEstimator(profile, assume=assume).estimate(where)
    assert profile.model is not None
    link = accelerator("A100").interconnect.bandwidth
    reduce = all_reduce_seconds(profile.model.parameter_bytes, 8, 3, link, 2e9, assume)
    step = result.total[0] - result.network[0]
    waiting = exposed_seconds(reduce, step, assume)
    slowest = straggler_factor(24, assume)
    assert result.network[0] == pytest.approx((step + waiting) * slowest - step)


def test_memory_is_held_against_what_is_usable(make_profile: MakeProfile, place: Place) -> None:
    where = place({"device": "T4"}, {"device": None, "memory": 10e9})
    result = AnalyticEstimator(make_profile()).estimate(where)
    assert result.memory_limit.tolist() == pytest.approx([0.94 * accelerator("T4").memory, 0.90 * 10e9])


def test_a_batch_that_is_too_large_exceeds_the_limit(make_profile: MakeProfile, place: Place) -> None:
    rows = [{"device": d, "batch": b} for d in ("T4", "H200") for b in (8, 1024)]
    result = AnalyticEstimator(make_profile()).estimate(place(*rows))
    assert (result.memory > result.memory_limit).tolist() == [False, True, False, False]


def test_a_cpu_needs_the_memory_that_the_run_needed(make_profile: MakeProfile, place: Place) -> None:
    profile = make_profile(memory=3e9, workers=2, batch_size=16)
    result = AnalyticEstimator(profile).estimate(place({"batch": 16}, {"batch": 32}, {"batch": 1}))
    assert result.memory[:2].tolist() == pytest.approx([1.5e9, 1.5e9 + 16 * 5e7])
    assert result.memory[2] == pytest.approx(1.5e9 - 15 * 5e7)


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
        stated = calibration(accelerator(name)).time_error
        assert (elsewhere.low[row], elsewhere.high[row]) == pytest.approx(stated)
    here = AnalyticEstimator(make_profile(gpu="H200", seconds=[0.5] * 10)).estimate(where)
    assert elsewhere.low[0] < here.low[0] < 1 < here.high[0] < elsewhere.high[0]
    assert (here.low[1], here.high[1]) == pytest.approx((elsewhere.low[1], elsewhere.high[1]))


def test_several_devices_are_less_certain_than_one(make_profile: MakeProfile, place: Place) -> None:
    rows = [{"device": "A100", "per_node": n} for n in (1, 2, 8)]
    result = AnalyticEstimator(make_profile()).estimate(place(*rows))
    assert result.high[0] < result.high[1] == result.high[2]
    assert result.low[0] > result.low[1] == result.low[2]


def test_fewer_than_ten_steps_widen_the_range_that_rests_on_them(
    make_profile: MakeProfile, place: Place
) -> None:
    where = place({}, {"device": "H200"})
    widths = []
    for count in (1, 2, 5, 10, 40):
        result = AnalyticEstimator(make_profile(seconds=[0.5] * count)).estimate(where)
        widths.append(result.high / result.low)
    on_cpu, on_accelerator = np.array(widths).T
    assert on_cpu[0] > on_cpu[1] > on_cpu[2] > on_cpu[3] == on_cpu[4]
    assert np.ptp(on_accelerator) == 0, "a run on a CPU says nothing about an accelerator's time"


def test_a_range_grows_with_the_distance_to_the_local_number_of_cores(
    make_profile: MakeProfile, place: Place
) -> None:
    rows = [{"cores": cores} for cores in (1, 2, 4, 16)]
    result = AnalyticEstimator(make_profile(cores=2.0, seconds=[0.5] * 10)).estimate(place(*rows))
    width = result.high / result.low
    assert width[1] < width[2] == pytest.approx(width[0])
    assert width[2] < width[3]


def test_steps_at_several_thread_counts_say_how_cores_share_the_work(
    make_profile: MakeProfile, place: Place
) -> None:
    rows = place({"cores": 2}, {"cores": 16})

    def speed_up(*by_threads: ThreadSteps) -> float:
        profile = make_profile(cores=2.0, seconds=[0.5] * 10, by_threads=by_threads)
        slow, fast = AnalyticEstimator(profile).estimate(rows).total
        assert slow == pytest.approx(0.5)
        return float(slow / fast)

    one = ThreadSteps(1, (1.0,))
    by_law = speed_up(one)
    assert speed_up(one, ThreadSteps(2, (1.0,))) < by_law < speed_up(one, ThreadSteps(2, (0.5,)))


@pytest.mark.parametrize("gpu", [None, "H200"])
def test_a_step_faster_than_any_arithmetic_is_not_believed(
    make_profile: MakeProfile, place: Place, gpu: str | None
) -> None:
    fake = AnalyticEstimator(make_profile(gpu=gpu, seconds=[1e-7] * 20)).estimate(place(*MIXED))
    unmeasured = AnalyticEstimator(make_profile(gpu=gpu, seconds=[])).estimate(place(*MIXED))
    assert fake.total == pytest.approx(unmeasured.total)


@given(
    device=st.sampled_from([None, *(a.name for a in accelerators())]),
    batch=st.integers(1, 4096),
    seconds=st.floats(1e-9, 10),
    cores=st.integers(1, 192),
)
def test_no_step_exceeds_the_peak_rate_or_bandwidth(
    make_profile: MakeProfile, place: Place, device: str | None, batch: int, seconds: float, cores: int
) -> None:
    profile = make_profile(gpu=device, seconds=[seconds] * 20)
    result = AnalyticEstimator(profile).estimate(place({"device": device, "batch": batch, "cores": cores}))
    assert profile.model is not None
    facts = accelerator(device) if device else None
    peak = max(facts.peak.values()) if facts else 224e9 * cores
    bandwidth = facts.memory_bandwidth if facts else 25e9 * cores
    fastest = result.total[0] * result.low[0] * (1 + 1e-9)
    assert profile.model.step_flop_per_sample * batch / fastest <= peak
    assert 2 * profile.model.parameter_bytes / fastest <= bandwidth


def test_a_cpu_estimate_is_surer_after_a_run_on_a_cpu(make_profile: MakeProfile, place: Place) -> None:
    local, foreign = (AnalyticEstimator(make_profile(gpu=g)).estimate(place({})) for g in (None, "H200"))
    assert foreign.low[0] < local.low[0] < 1 < local.high[0] < foreign.high[0]
    assert (local.measured[0], foreign.measured[0]) == (True, False)


def test_loader_workers_that_kept_up_say_nothing_about_a_faster_device(
    make_profile: MakeProfile, place: Place
) -> None:
    profile = make_profile(seconds=[2.0], input_wait=0.001, loader_workers=4)
    result = AnalyticEstimator(profile).estimate(place({"device": "H200"}))
    assert result.input[0] == pytest.approx(0.001)


def test_loader_workers_that_were_late_hold_back_a_faster_device(
    make_profile: MakeProfile, place: Place
) -> None:
    # Four workers on four cores took 2 s for a batch, so that sixteen samples cost 8 s of one core.
    profile = make_profile(seconds=[2.0], input_wait=1.0, loader_workers=4, cores=4)
    where = place({"device": "H200", "cores": 64}, {"device": "H200", "cores": 2})
    result = AnalyticEstimator(profile).estimate(where)
    assert (result.total - result.network).tolist() == pytest.approx([2.0, 4.0])


def test_the_devices_of_a_node_share_its_cores_for_loading(make_profile: MakeProfile, place: Place) -> None:
    profile = make_profile(seconds=[2.0], input_wait=1.0, loader_workers=4, cores=4)
    result = AnalyticEstimator(profile).estimate(place({"device": "H200", "cores": 8, "per_node": 4}))
    assert result.total[0] - result.network[0] == pytest.approx(4.0)


def test_data_loaded_by_the_script_itself_costs_the_same_everywhere(
    make_profile: MakeProfile, place: Place
) -> None:
    profile = make_profile(seconds=[2.0], input_wait=0.5, batch_size=16)
    result = AnalyticEstimator(profile).estimate(place({"device": "H200"}, {"batch": 32}))
    assert result.input.tolist() == pytest.approx([0.5, 1.0])


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
    shown = AnalyticEstimator(make_profile(make_model(precision="bf16"))).estimate(where)
    request = AnalyticEstimator(make_profile(make_model(precision="fp32")), "bf16").estimate(where)
    assert _row(shown, 0) == _row(request, 0)


@pytest.mark.parametrize("name", [a.name for a in accelerators()])
def test_every_known_accelerator_gets_a_finite_step(
    make_profile: MakeProfile, place: Place, name: str
) -> None:
    result = AnalyticEstimator(make_profile()).estimate(place({"device": name}))
    assert result.known[0]
    assert 0 < result.total[0] < 1.0


def test_a_profile_without_a_model_is_refused(make_profile: MakeProfile) -> None:
    with pytest.raises(BadInputError, match="'resnet'") as refusal:
        AnalyticEstimator(replace(make_profile(), model=None))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", [{"operators": ()}, {"forward_flop_per_sample": 0.0}])
def test_a_profile_without_a_traced_step_is_refused(
    make_model: MakeModel, make_profile: MakeProfile, missing: dict[str, Any]
) -> None:
    with pytest.raises(BadInputError, match=r"'resnet'.*--for") as refusal:
        AnalyticEstimator(make_profile(make_model(**missing)))
    assert "\n" not in str(refusal.value)


MakeProfile = Callable[..., Profile]
Place = Callable[..., Placements]


def _on(profile: Profile, name: str) -> Correction:
    assert profile.model is not None
    return correction_on(accelerator(name), profile, profile.model)


def _on_cpu(profile: Profile) -> Correction:
    assert profile.model is not None
    return correction_on_cpu(profile, profile.model)


@given(
    seconds=st.floats(1e-3, 1e3),
    cores=st.integers(1, 64),
    batch=st.integers(1, 512),
    wait=st.floats(0, 0.9),
    loaders=st.sampled_from([0, 1, 4, 100]),
)
def test_the_local_cpu_itself_is_estimated_as_it_was_measured(
    make_profile: MakeProfile,
    place: Place,
    seconds: float,
    cores: int,
    batch: int,
    wait: float,
    loaders: int,
) -> None:
    profile = make_profile(
        seconds=[seconds], cores=cores, batch_size=batch, input_wait=wait * seconds, loader_workers=loaders
    )
    result = AnalyticEstimator(profile).estimate(place({"cores": cores, "batch": batch}))
    possible = max(0.05, 1.0 - wait) * seconds >= least_on_cpu(profile.model, batch, cores)
    assert result.measured[0] == possible
    if possible:
        assert result.total[0] == pytest.approx(seconds)


def test_the_workers_of_a_local_run_share_its_cores(make_profile: MakeProfile, place: Place) -> None:
    profile = make_profile(seconds=[0.5], cores=8.0, workers=4)
    result = AnalyticEstimator(profile).estimate(place({"cores": 2}))
    assert result.total[0] == pytest.approx(0.5)


def test_the_median_step_counts(make_profile: MakeProfile) -> None:
    steady = _on_cpu(make_profile(seconds=[0.5, 0.5, 0.5]))
    assert _on_cpu(make_profile(seconds=[0.5, 40.0, 0.5])) == steady
    assert steady.exact


def test_a_slower_cpu_run_makes_every_cpu_slower_by_as_much(make_profile: MakeProfile) -> None:
    once, twice = (_on_cpu(make_profile(seconds=[s])) for s in (0.5, 1.0))
    assert twice.factor == pytest.approx(2 * once.factor)


@pytest.mark.parametrize("name", ["H200", "A100", "T4"])
def test_a_cpu_run_leaves_gpu_estimates_alone(make_profile: MakeProfile, name: str) -> None:
    assert _on(make_profile(seconds=[123.0]), name) == Correction(1.0, False)


def test_a_gpu_run_leaves_cpu_estimates_alone(make_profile: MakeProfile) -> None:
    assert _on_cpu(make_profile(gpu="H200", seconds=[123.0])) == Correction(1.0, False)


def test_a_run_on_an_h200_corrects_the_h200_fully_and_others_in_part(
    make_profile: MakeProfile, place: Place
) -> None:
    uncorrected = AnalyticEstimator(make_profile()).estimate(place({"device": "H200"}, {"device": "A100"}))
    profile = make_profile(gpu="NVIDIA H200", seconds=[4 * float(uncorrected.total[0])])
    own, other = _on(profile, "H200"), _on(profile, "A100")
    assert (own.factor, own.exact) == (pytest.approx(4.0), True)
    assert (other.factor, other.exact) == (pytest.approx(2.0), False)
    result = AnalyticEstimator(profile).estimate(place({"device": "H200"}, {"device": "A100"}))
    assert (result.total / uncorrected.total).tolist() == pytest.approx([4.0, 2.0])


def test_the_correction_is_free_of_the_wait_for_data(make_profile: MakeProfile) -> None:
    waiting = make_profile(gpu="H200", seconds=[0.3], input_wait=0.1)
    assert _on(waiting, "H200").factor == pytest.approx(
        _on(make_profile(gpu="H200", seconds=[0.2]), "H200").factor
    )


def test_asking_for_another_precision_than_the_run_s_still_makes_a_difference(
    make_profile: MakeProfile, place: Place
) -> None:
    profile = make_profile(gpu="H200", seconds=[0.5])
    where = place({"device": "H200", "batch": 4096})
    fp32, bf16 = (AnalyticEstimator(profile, p).estimate(where).total[0] for p in ("fp32", "bf16"))
    assert bf16 < 0.9 * fp32


@pytest.mark.parametrize("gpu", ["A device nobody knows", "H200"])
def test_without_a_known_device_or_a_step_nothing_is_corrected(make_profile: MakeProfile, gpu: str) -> None:
    profile = make_profile(gpu=gpu, seconds=[] if gpu == "H200" else [0.5])
    assert _on(profile, "H200") == _on(replace(profile, steps=None), "H200") == Correction(1.0, False)


@pytest.mark.parametrize("gpu", [None, "H200"])
def test_a_run_without_steps_corrects_nothing(make_profile: MakeProfile, gpu: str | None) -> None:
    profile = replace(make_profile(gpu=gpu), steps=None)
    assert _on_cpu(profile) == _on(profile, "H200") == Correction(1.0, False)


def test_rare_long_waits_do_not_make_the_device_look_fast(make_profile: Callable[..., Profile]) -> None:
    """Three steps of four were fed in time; the mean wait is longer than the median step."""
    bursty = make_profile(seconds=[10.0, 10.0, 10.0, 130.0], input_wait=30.0, loader_workers=4, busy=10.0)
    steady = make_profile(seconds=[10.0, 10.0, 10.0, 10.0])
    assert correction_on_cpu(bursty, bursty.model) == correction_on_cpu(steady, steady.model)
    unknown = make_profile(seconds=[10.0, 10.0, 10.0, 130.0], input_wait=30.0, loader_workers=4)
    assert correction_on_cpu(unknown, unknown.model).factor == pytest.approx(
        0.05 * correction_on_cpu(steady, steady.model).factor
    )


ASSUME = ScaleOutAssumptions()
# Nothing is lost, so that the ring's own arithmetic shows.
IDEAL = ScaleOutAssumptions(
    link_efficiency=1.0, network_efficiency=1.0, link_latency=0.0, network_latency=0.0
)

gradients = st.floats(1e3, 1e11)
bandwidth = st.floats(1e8, 1e12)
counts = st.integers(1, 64)


@given(gradients, bandwidth, bandwidth)
def test_one_device_on_one_node_costs_nothing(size: float, link: float, network: float) -> None:
    assert all_reduce_seconds(size, 1, 1, link, network, ASSUME) == 0.0


@pytest.mark.parametrize(
    ("per_node", "nodes", "seconds"),
    [
        (2, 1, 1.0),  # 2 * 1/2 of 100 GB over 100 GB/s
        (8, 1, 1.75),  # 2 * 7/8
        (1, 2, 10.0),  # 2 * 1/2 of 100 GB over 10 GB/s
        (1, 4, 15.0),  # 2 * 3/4
        (8, 4, 16.75),  # one ring after the other
    ],
)
def test_a_ring_of_n_sends_twice_n_minus_one_nths_of_the_data(
    per_node: int, nodes: int, seconds: float
) -> None:
    assert all_reduce_seconds(100e9, per_node, nodes, 100e9, 10e9, IDEAL) == pytest.approx(seconds)


def test_links_lose_a_share_and_every_bucket_pays_each_hop() -> None:
    # 100 MiB are 4 buckets; 2 levels of 15 µs and 1 of 40 µs each way; 75 and 50 % of the bandwidth.
    size = 100 * 2**20
    assume = ScaleOutAssumptions(0.75, 0.5, 15e-6, 40e-6)
    expected = (2 * 3 / 4 * size / 75e9) + (2 * 1 / 2 * size / 5e9) + 4 * (4 * 15e-6 + 2 * 40e-6)
    assert all_reduce_seconds(size, 4, 2, 100e9, 10e9, assume) == pytest.approx(expected)


@given(gradients, counts, counts, counts, bandwidth, bandwidth)
def test_more_nodes_are_never_cheaper(
    size: float, per_node: int, nodes: int, more: int, link: float, network: float
) -> None:
    few, many = (all_reduce_seconds(size, per_node, n, link, network, ASSUME) for n in (nodes, nodes + more))
    assert few <= many


@given(gradients, counts, counts, counts, bandwidth, bandwidth)
def test_more_devices_on_a_node_are_never_cheaper(
    size: float, per_node: int, nodes: int, more: int, link: float, network: float
) -> None:
    few, many = (
        all_reduce_seconds(size, n, nodes, link, network, ASSUME) for n in (per_node, per_node + more)
    )
    assert few <= many


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_between_the_last_bucket_and_all_of_an_all_reduce_is_seen(reduce: float, step: float) -> None:
    shown = exposed_seconds(reduce, step, ASSUME)
    assert 0.1 * reduce <= shown <= reduce
    assert shown >= reduce - 0.45 * step


def test_what_the_backward_pass_covers_is_hidden() -> None:
    assume = ScaleOutAssumptions(overlap=0.45, exposed=0.1)
    assert exposed_seconds(10.0, 10.0, assume) == pytest.approx(10.0 - 4.5)
    assert exposed_seconds(1.0, 10.0, assume) == pytest.approx(0.1)
    assert exposed_seconds(1.0, 0.0, assume) == 1.0


def test_arrays_and_scalars_agree() -> None:
    per_node, nodes = np.array([1.0, 8.0, 8.0]), np.array([1.0, 1.0, 3.0])
    at_once = np.asarray(all_reduce_seconds(1e9, per_node, nodes, 1e11, 1e10, ASSUME))
    alone = [all_reduce_seconds(1e9, p, n, 1e11, 1e10, ASSUME) for p, n in zip(per_node, nodes, strict=True)]
    assert at_once.tolist() == pytest.approx(alone)


def test_data_loaded_in_the_training_process_is_always_waited_for() -> None:
    waits = input_seconds(True, 0.01, np.array([10.0, 20.0]), 64.0, np.array([5.0, 0.0]))
    assert np.asarray(waits).tolist() == pytest.approx([0.1, 0.2])


def test_loader_workers_are_waited_for_only_after_the_step() -> None:
    # 100 samples of 10 ms on 4 cores take 250 ms.
    assert input_seconds(False, 0.01, 100.0, 4.0, 0.1) == pytest.approx(0.15)
    assert input_seconds(False, 0.01, 100.0, 4.0, 0.3) == 0.0


def test_less_than_a_core_loads_like_one() -> None:
    assert input_seconds(False, 0.01, 100.0, 0.5, 0.0) == pytest.approx(1.0)


def test_a_lost_node_costs_a_restart_and_half_a_checkpoint_interval() -> None:
    # 0.5 losses an hour of each of 4 nodes, each costing 300 s + 1800 s / 2.
    assert restart_factor(0.5, 4, 300.0, 1800.0) == pytest.approx(1 + 0.5 * 4 * 1200 / 3600)
    assert restart_factor(0.0, 4, 300.0, 1800.0) == 1.0
    assert np.asarray(restart_factor(0.1, np.array([1, 2]), 60.0, 600.0)).tolist() == pytest.approx(
        [1.01, 1.02]
    )


def test_traced_calls_give_measured_devices_narrower_ranges(
    make_model: MakeModel, make_profile: MakeProfile, place: Place
) -> None:
    sizes = {"batch": 1, "m": 8, "n": 1024, "k": 1024}
    call = OperatorCall("forward", "mm", "matmul", "float32", 50.0, 1.7e7, 4.3e6, 3.3e4, 4.2e6, sizes, "m")
    profile = make_profile(model=make_model(calls=(call,), traced_batch=8))
    where = place({"device": "H200"}, {"device": "L40S"}, {"device": "H200", "batch": 4096})
    result = AnalyticEstimator(profile, precision="bf16").estimate(where)
    assert result.measured.tolist() == [True, False, True]
    assert result.high[1] / result.low[1] > result.high[0] / result.low[0]
    assert result.total[2] > result.total[0] > 0
    parts = sum(getattr(result, name) for name in PARTS)
    assert parts.tolist() == pytest.approx(result.total.tolist())
