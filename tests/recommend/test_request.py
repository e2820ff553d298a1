"""What the user asks for, and how long the job is."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from trimtab.core import BadInputError, Profile
from trimtab.recommend import Request, work

MakeProfile = Callable[..., Profile]


def test_the_length_is_what_the_script_showed(make_profile: MakeProfile) -> None:
    job = work(make_profile(epochs=3.0, dataset_length=500))
    assert (job.samples, job.shown) == (1500.0, True)


def test_total_steps_count_all_workers(make_profile: MakeProfile) -> None:
    job = work(make_profile(epochs=None, total_steps=100, workers=4, batch_size=8))
    assert job.samples == 100 * 4 * 8


def test_what_the_user_says_goes_before_what_the_script_showed(make_profile: MakeProfile) -> None:
    profile = make_profile(epochs=3.0, dataset_length=500)
    assert work(profile, epochs=7).samples == 3500
    assert work(profile, steps=10).samples == 10 * profile.steps.batch_size
    assert work(profile, samples=42).samples == 42


def test_an_unseen_length_is_a_round_number_that_says_so(make_profile: MakeProfile) -> None:
    job = work(make_profile(epochs=None, dataset_length=None))
    assert job.samples == 1_000_000
    assert not job.shown
    assert "--epochs" in job.source
    assert work(replace(make_profile(), steps=None)).samples == 1_000_000


def test_one_epoch_is_assumed_where_only_the_data_set_was_seen(make_profile: MakeProfile) -> None:
    job = work(make_profile(epochs=None, dataset_length=500))
    assert (job.samples, job.shown) == (500.0, False)


def test_epochs_of_an_unseen_data_set_are_refused(make_profile: MakeProfile) -> None:
    with pytest.raises(BadInputError, match="--samples"):
        work(make_profile(dataset_length=None), epochs=3)


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ({"deadline": 0.0}, "deadline.* 0"),
        ({"budget": -1.0}, "budget.* -1"),
        ({"max_nodes": 0}, "--max-nodes.* 0"),
        ({"max_devices": 0}, "--max-devices.* 0"),
        ({"top": 0}, "--top.* 0"),
        ({"batch_sizes": (0,)}, "batch"),
    ],
)
def test_impossible_limits_are_refused_by_name(limit: dict[str, object], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        Request(**limit)  # type: ignore[arg-type]
