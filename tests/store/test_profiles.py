from collections.abc import Callable

import pytest

from trimtab.core import NotFoundError, Profile
from trimtab.store import Store


def test_the_latest_profile_is_the_last_one_taken(store: Store, make_profile: Callable[..., Profile]) -> None:
    store.profiles.save(make_profile("p1", created=5.0))
    store.profiles.save(make_profile("p2", created=4.0))
    assert store.profiles.latest() == make_profile("p1", created=5.0)


def test_without_any_profile_the_latest_says_how_to_take_one(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no profile yet; take one with: trimtab profile"):
        store.profiles.latest()


def test_profiles_are_listed_newest_first_and_by_workload(
    store: Store, make_profile: Callable[..., Profile]
) -> None:
    for id, created, name in (("p1", 1.0, "resnet"), ("p2", 3.0, "bert"), ("p3", 2.0, "resnet")):
        store.profiles.save(make_profile(id, created, name))
    assert [profile.id for profile in store.profiles.list(2)] == ["p2", "p3"]
    assert [profile.id for profile in store.profiles.list(9, workload="resnet")] == ["p3", "p1"]
    assert store.profiles.list(9, workload="\ud800") == ()
