"""The local run corrects estimates for its own kind of device, and leaves the others alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import accelerator
from trimtab.core import Profile
from trimtab.predict import AnalyticEstimator, Placements
from trimtab.predict.cost.local_run import Correction, correction_on, correction_on_cpu

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
    found = AnalyticEstimator(profile).estimate(place({"cores": cores, "batch": batch}))
    assert found.total[0] == pytest.approx(seconds)
    assert found.measured[0]


def test_the_workers_of_a_local_run_share_its_cores(make_profile: MakeProfile, place: Place) -> None:
    profile = make_profile(seconds=[0.5], cores=8.0, workers=4)
    found = AnalyticEstimator(profile).estimate(place({"cores": 2}))
    assert found.total[0] == pytest.approx(0.5)


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
    found = AnalyticEstimator(profile).estimate(place({"device": "H200"}, {"device": "A100"}))
    assert (found.total / uncorrected.total).tolist() == pytest.approx([4.0, 2.0])


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
    bursty = make_profile(seconds=[0.1, 0.1, 0.1, 1.3], input_wait=0.3, loader_workers=4, busy=0.1)
    steady = make_profile(seconds=[0.1, 0.1, 0.1, 0.1])
    assert correction_on_cpu(bursty, bursty.model) == correction_on_cpu(steady, steady.model)
    unknown = make_profile(seconds=[0.1, 0.1, 0.1, 1.3], input_wait=0.3, loader_workers=4)
    assert correction_on_cpu(unknown, unknown.model).factor == pytest.approx(
        0.05 * correction_on_cpu(steady, steady.model).factor
    )
