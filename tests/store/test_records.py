"""What is common to decisions and profiles: round trips, ids and prefixes."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import (
    Answer,
    BadInputError,
    Contribution,
    Decision,
    Estimate,
    Host,
    Model,
    NotFoundError,
    Operators,
    Profile,
    Series,
    Steps,
    Workload,
)
from trimtab.store import Store

T = TypeVar("T")

# Every float but NaN; text without NUL or halves of characters where it has a column of its own.
number = st.floats(allow_nan=False)
column = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
by_type: dict[Any, st.SearchStrategy[Any]] = {
    float: number,
    float | None: st.none() | number,
    tuple[float, ...]: st.lists(number, max_size=3).map(tuple),
}


def built(kind: type[T], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Instances of a dataclass without NaN."""
    numbers = {name: by_type[hint] for name, hint in get_type_hints(kind).items() if hint in by_type}
    return st.builds(kind, **{**numbers, **fields})


def few(items: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=3).map(tuple)


scalar = st.none() | st.booleans() | st.integers() | number | st.text()
action = st.dictionaries(st.text(), scalar, max_size=3)
estimate = st.builds(
    lambda range_, coverage, unit: Estimate(range_[1], range_[0], range_[2], coverage, unit),
    st.lists(number, min_size=3, max_size=3).map(sorted),
    st.floats(0.0, 1.0, exclude_min=True),
    st.text(),
)
estimates = st.dictionaries(st.text(), estimate, max_size=3)
answer = built(Answer, action=action, estimates=estimates)
decisions = built(
    Decision,
    kind=column,
    subject=column,
    action=action,
    estimates=estimates,
    rule=answer,
    model=st.none() | answer,
    alternatives=few(answer),
    contributions=few(built(Contribution)),
)
profiles = built(
    Profile,
    workload=built(Workload, name=column),
    host=built(Host),
    series=built(Series),
    model=st.none() | built(Model, operators=few(built(Operators))),
    steps=st.none() | built(Steps),
)
serial = itertools.count()
many = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _types(value: Any) -> Any:
    return {key: type(scalar) for key, scalar in value.items()}


@many
@given(decision=decisions)
def test_a_decision_comes_back_as_it_went_in(store: Store, decision: Decision) -> None:
    decision = replace(decision, id=f"d{next(serial)}.")
    store.ledger.record(decision)
    back = store.ledger.get(decision.id)
    assert back == decision
    assert _types(back.action) == _types(decision.action)


@many
@given(profile=profiles)
def test_a_profile_comes_back_as_it_went_in(store: Store, profile: Profile) -> None:
    profile = replace(profile, id=f"p{next(serial)}.")
    store.profiles.save(profile)
    assert store.profiles.get(profile.id) == profile


@many
@given(
    ids=st.sets(st.text(st.sampled_from("abA_%é\U0001f600"), min_size=1, max_size=4), min_size=1),
    data=st.data(),
)
def test_a_prefix_finds_exactly_the_ids_that_start_with_it(
    store: Store, make_decision: Callable[..., Decision], ids: set[str], data: st.DataObject
) -> None:
    salt = f"{next(serial)}."
    for id in ids:
        store.ledger.record(make_decision(salt + id))
    prefix = data.draw(st.sampled_from(sorted(id[:end] for id in ids for end in range(1, len(id) + 1))))
    matching = [id for id in ids if id.startswith(prefix)]
    if prefix in ids or len(matching) == 1:
        expected = prefix if prefix in ids else matching[0]
        assert store.ledger.get(salt + prefix).id == salt + expected
    else:
        with pytest.raises(NotFoundError):
            store.ledger.get(salt + prefix)


def test_an_ambiguous_prefix_is_refused_with_the_candidates(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    for id in ("a1b", "a1c", "a2"):
        store.ledger.record(make_decision(id))
    with pytest.raises(NotFoundError, match=r'"a1" starts the ids of several decisions: a1b, a1c; give more'):
        store.ledger.get("a1")


def test_many_candidates_are_cut_short(store: Store, make_decision: Callable[..., Decision]) -> None:
    for index in range(9):
        store.ledger.record(make_decision(f"a{index}"))
    with pytest.raises(NotFoundError, match="a0, a1, a2, a3, a4, …; give more"):
        store.ledger.get("a")


def test_an_unknown_id_is_refused_with_the_newest_ones(
    store: Store, make_profile: Callable[..., Profile]
) -> None:
    with pytest.raises(NotFoundError, match=r'no profile "zz" in .*; there are no profiles yet'):
        store.profiles.get("zz")
    store.profiles.save(make_profile("p1", created=1.0))
    store.profiles.save(make_profile("p2", created=2.0))
    with pytest.raises(NotFoundError, match=r'no profile "zz" in .*; the newest are p2, p1'):
        store.profiles.get("zz")


@pytest.mark.parametrize("id", ["", "\0", "\ud800"])
def test_an_id_that_no_record_can_have_is_unknown(
    store: Store, make_decision: Callable[..., Decision], id: str
) -> None:
    store.ledger.record(make_decision("a1"))
    with pytest.raises(NotFoundError, match="the newest are a1"):
        store.ledger.get(id)
    with pytest.raises(BadInputError, match="id"):
        store.ledger.record(make_decision(id))


def test_the_same_record_may_be_written_again(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.ledger.record(make_decision("a1"))
    store.ledger.record(make_decision("a1"))
    assert len(store.ledger.list()) == 1


def test_another_record_under_a_taken_id_is_refused_and_the_first_one_stays(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    store.ledger.record(make_decision("a1"))
    with pytest.raises(BadInputError, match="decision a1 is already kept with other contents"):
        store.ledger.record(make_decision("a1", reason="another"))
    assert store.ledger.get("a1") == make_decision("a1")


def test_a_value_that_is_not_a_number_is_refused_and_nothing_is_kept(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    with pytest.raises(BadInputError, match="NaN"):
        store.ledger.record(make_decision("a1", action={"x": float("nan")}))
    assert store.ledger.list() == ()


def test_a_limit_below_one_is_refused_and_a_huge_one_is_not(store: Store) -> None:
    with pytest.raises(BadInputError, match="a limit of 0 shows nothing"):
        store.ledger.list(0)
    assert store.ledger.list(10**30) == ()
