from collections.abc import Callable

import pytest

from trimtab.core import BadInputError, Decision, NotFoundError, Outcome, Profile
from trimtab.store import Store


def test_decisions_are_listed_newest_first(store: Store, make_decision: Callable[..., Decision]) -> None:
    for id, created in (("old", 1.0), ("new", 3.0), ("middle", 2.0), ("middle too", 2.0)):
        store.ledger.record(make_decision(id, created=created))
    assert [decision.id for decision in store.ledger.list(3)] == ["new", "middle too", "middle"]


def test_decisions_are_listed_by_kind_and_subject(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    store.ledger.record(make_decision("a", kind="recommend", subject="resnet"))
    store.ledger.record(make_decision("b", kind="schedule", subject="resnet"))
    store.ledger.record(make_decision("c", kind="schedule", subject="bert"))
    assert [decision.id for decision in store.ledger.list(9, kind="schedule")] == ["c", "b"]
    assert [decision.id for decision in store.ledger.list(9, subject="resnet")] == ["b", "a"]
    assert [decision.id for decision in store.ledger.list(9, "schedule", "resnet")] == ["b"]
    assert store.ledger.list(9, kind="\0") == ()


def test_outcomes_join_their_decision_oldest_first(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    store.ledger.record(make_decision("a1"))
    store.ledger.record(make_decision("b1"))
    first = Outcome("a1", 2.0, {"time": 90.0, "memory": float("inf")}, "interrupted")
    second = Outcome("a1", 3.0, {"time": 95.0})
    store.ledger.record_outcome(first)
    store.ledger.record_outcome(second)
    assert store.ledger.outcomes("a") == (first, second)
    assert store.ledger.outcomes("b1") == ()


@pytest.mark.parametrize("id", ["a", "zz", "\0"])
def test_an_outcome_of_no_decision_is_refused(
    store: Store, make_decision: Callable[..., Decision], id: str
) -> None:
    store.ledger.record(make_decision("a1"))
    with pytest.raises(NotFoundError, match="a1"):
        store.ledger.record_outcome(Outcome(id, 2.0, {"time": 1.0}))
    assert store.ledger.outcomes("a1") == ()


def test_an_outcome_that_is_not_a_number_is_refused(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    store.ledger.record(make_decision("a1"))
    with pytest.raises(BadInputError, match="NaN"):
        store.ledger.record_outcome(Outcome("a1", 2.0, {"time": float("nan")}))
    assert store.ledger.outcomes("a1") == ()


def test_the_latest_profile_is_the_last_one_taken(store: Store, make_profile: Callable[..., Profile]) -> None:
    store.profiles.save(make_profile("p1", created=5.0))
    store.profiles.save(make_profile("p2", created=4.0))
    assert store.profiles.latest() == make_profile("p1", created=5.0)


def test_without_any_profile_the_latest_says_how_to_take_one(store: Store) -> None:
    with pytest.raises(NotFoundError, match="trimtab profile"):
        store.profiles.latest()


def test_profiles_are_listed_newest_first_and_by_workload(
    store: Store, make_profile: Callable[..., Profile]
) -> None:
    for id, created, name in (("p1", 1.0, "resnet"), ("p2", 3.0, "bert"), ("p3", 2.0, "resnet")):
        store.profiles.save(make_profile(id, created, name))
    assert [profile.id for profile in store.profiles.list(2)] == ["p2", "p3"]
    assert [profile.id for profile in store.profiles.list(9, workload="resnet")] == ["p3", "p1"]
    assert store.profiles.list(9, workload="\ud800") == ()
