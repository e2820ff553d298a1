"""Every word of the vocabulary goes through JSON and comes back the same."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import trimtab.core
from trimtab.core import (
    Answer,
    BadInputError,
    Configuration,
    Contribution,
    Decision,
    Dropped,
    EngineEvent,
    Estimate,
    Goal,
    Host,
    Kind,
    Launch,
    Layer,
    Model,
    Node,
    Offer,
    OperatorCall,
    Operators,
    Outcome,
    Parallelism,
    Profile,
    Scalar,
    Series,
    Steps,
    ThreadSteps,
    Workload,
    from_plain,
    to_plain,
)

T = TypeVar("T")

number = st.floats(allow_nan=False)
scalar = st.none() | st.booleans() | st.integers() | number | st.text()
by_type: dict[Any, st.SearchStrategy[Any]] = {
    float: number,
    float | None: st.none() | number,
    tuple[float, ...]: st.lists(number, max_size=3).map(tuple),
    Mapping[str, float]: st.dictionaries(st.text(), number, max_size=3),
    Mapping[str, Scalar]: st.dictionaries(st.text(), scalar, max_size=3),
}


def built(kind: type[T], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Instances of a dataclass without NaN, which would not equal itself."""
    known = {name: by_type[hint] for name, hint in get_type_hints(kind).items() if hint in by_type}
    return st.builds(kind, **{**known, **fields})


def few(items: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=2).map(tuple)


estimate = st.builds(
    lambda ends, coverage, unit: Estimate(ends[1], ends[0], ends[2], coverage, unit),
    st.lists(number, min_size=3, max_size=3).map(sorted),
    st.floats(0.0, 1.0, exclude_min=True),
    st.text(),
)
estimates = st.dictionaries(st.text(), estimate, max_size=2)
answer = built(Answer, estimates=estimates)
contribution = built(Contribution)
workload = built(Workload)
layer = built(Layer)
operators = built(Operators)
operator_call = built(OperatorCall)
model = built(Model, layers=few(layer), operators=few(operators), calls=few(operator_call))
thread_steps = built(ThreadSteps)
steps = built(Steps, by_threads=few(thread_steps))
host = built(Host)
series = built(Series)
offer = built(Offer)
parallel = built(Parallelism)

VOCABULARY: dict[type, st.SearchStrategy[Any]] = {
    Answer: answer,
    Configuration: built(Configuration, offer=offer, parallel=parallel),
    Contribution: contribution,
    Decision: built(
        Decision,
        estimates=estimates,
        rule=answer,
        model=st.none() | answer,
        alternatives=few(answer),
        contributions=few(contribution),
    ),
    EngineEvent: built(EngineEvent),
    Estimate: estimate,
    Dropped: built(Dropped),
    Goal: built(
        Goal,
        deadline=st.none() | st.floats(0.1, 1e9),
        budget=st.none() | st.floats(0.1, 1e9),
        top=st.integers(1, 99),
    ),
    Host: host,
    Launch: built(
        Launch,
        workload=workload,
        parts=few(st.tuples(st.text(), st.integers(1, 9))),
        environment=st.dictionaries(st.text(), st.text(), max_size=2),
    ),
    Layer: layer,
    Model: model,
    Node: built(Node),
    Offer: offer,
    OperatorCall: operator_call,
    Operators: operators,
    Outcome: built(Outcome),
    Parallelism: parallel,
    Profile: built(
        Profile,
        workload=workload,
        host=host,
        series=series,
        model=st.none() | model,
        steps=st.none() | steps,
    ),
    Series: series,
    Steps: steps,
    ThreadSteps: thread_steps,
    Workload: workload,
}


def _public_dataclasses() -> set[type]:
    public = (getattr(trimtab.core, name) for name in trimtab.core.__all__)
    return {thing for thing in public if isinstance(thing, type) and dataclasses.is_dataclass(thing)}


def test_every_word_of_the_vocabulary_is_tried_here() -> None:
    assert set(VOCABULARY) == _public_dataclasses()


@pytest.mark.parametrize("kind", VOCABULARY, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_word_survives_json(kind: type, data: st.DataObject) -> None:
    value = data.draw(VOCABULARY[kind])
    text = json.dumps(to_plain(value))
    back = from_plain(kind, json.loads(text))
    assert back == value
    assert json.dumps(to_plain(back)) == text


@pytest.mark.parametrize("kind", sorted(_public_dataclasses(), key=str), ids=lambda kind: kind.__name__)
def test_a_word_is_frozen_and_slotted(kind: type) -> None:
    value = object.__new__(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(kind)[0].name, 1)
    assert not hasattr(value, "__dict__")


@dataclass(frozen=True)
class Ticket:
    """One field of every sort that the vocabulary uses."""

    name: str
    count: int
    price: float
    paid: bool
    day: date
    kind: Kind
    limit: float | None
    value: Scalar
    sizes: tuple[int, ...]
    offers: Mapping[str, Contribution]
    anything: Any
    note: str = "none"


TICKET: dict[str, Any] = {
    "name": "a",
    "count": 2,
    "price": 1.5,
    "paid": True,
    "day": "2026-01-02",
    "kind": "batch",
    "limit": None,
    "value": 3,
    "sizes": [1, 2],
    "offers": {"x": {"name": "n", "value": 2.0}},
    "anything": {"free": ["form"]},
}


def test_each_sort_of_field_becomes_its_type() -> None:
    assert from_plain(Ticket, TICKET) == Ticket(
        name="a",
        count=2,
        price=1.5,
        paid=True,
        day=date(2026, 1, 2),
        kind=Kind.BATCH,
        limit=None,
        value=3,
        sizes=(1, 2),
        offers={"x": Contribution("n", 2.0)},
        anything={"free": ["form"]},
    )


def test_plain_data_holds_nothing_that_json_cannot() -> None:
    ticket = from_plain(Ticket, TICKET)
    assert to_plain(ticket) == {**TICKET, "note": "none"}
    assert type(to_plain(ticket)["kind"]) is str


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", None])
def test_a_union_keeps_the_type_that_was_given(value: Scalar) -> None:
    back = from_plain(Ticket, {**TICKET, "value": value}).value
    assert (back, type(back)) == (value, type(value))


def test_a_union_prefers_the_exact_type_whatever_its_order() -> None:
    union: Any = float | int
    assert [type(from_plain(union, value)) for value in (1, 1.0)] == [int, float]


def test_a_whole_number_will_do_for_a_real_one() -> None:
    price = from_plain(Ticket, {**TICKET, "price": 2, "limit": 3})
    assert (price.price, type(price.price)) == (2.0, float)
    assert (price.limit, type(price.limit)) == (3.0, float)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("name", 5, "Ticket.name should be str, not 5"),
        ("name", None, "Ticket.name should be str, not None"),
        ("count", 1.5, "Ticket.count should be int, not 1.5"),
        ("count", True, "Ticket.count should be int, not True"),
        ("price", "dear", "Ticket.price should be float, not 'dear'"),
        ("price", True, "Ticket.price should be float, not True"),
        ("price", 10**400, "Ticket.price is 1000"),
        ("paid", 1, "Ticket.paid should be bool, not 1"),
        ("day", "yesterday", "Ticket.day should be date, not 'yesterday'"),
        ("day", 20260102, "Ticket.day should be date, not 20260102"),
        ("kind", "party", "Ticket.kind is 'party'; it should be one of training, inference, batch"),
        ("kind", [], "Ticket.kind is []; it should be one of training, inference, batch"),
        ("limit", "none", "Ticket.limit should be float, not 'none'"),
        ("value", [1], "Ticket.value should be str, not [1]"),
        ("sizes", "12", "Ticket.sizes should be a list, not '12'"),
        ("sizes", [1, 2, "x"], "Ticket.sizes[2] should be int, not 'x'"),
        ("offers", [], "Ticket.offers should be an object, not []"),
        ("offers", {"x": 1}, "Ticket.offers.x should be an object, not 1"),
        ("offers", {"x": {"name": "n"}}, "Ticket.offers.x.value is missing"),
        ("offers", {"x": {"name": "n", "value": "v"}}, "Ticket.offers.x.value should be float, not 'v'"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(BadInputError) as refusal:
        from_plain(Ticket, {**TICKET, field: value})
    assert str(refusal.value).startswith(sentence)
    assert len(str(refusal.value)) < 120


@pytest.mark.parametrize("field", TICKET)
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(BadInputError, match=f"^Ticket.{field} is missing$"):
        from_plain(Ticket, {k: v for k, v in TICKET.items() if k != field})


def test_a_missing_field_with_a_default_takes_it() -> None:
    assert from_plain(Ticket, TICKET).note == "none"


@pytest.mark.parametrize(
    ("extra", "named"), [({"zeal": 1}, "zeal"), ({"b": 1, "a": 2}, "a"), ({5: 1, "x": 2}, "5")]
)
def test_an_unknown_field_is_refused_by_name(extra: dict[Any, int], named: str) -> None:
    with pytest.raises(BadInputError, match=f"^Ticket has no field '{named}'$"):
        from_plain(Ticket, {**TICKET, **extra})


def test_something_that_is_no_object_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^Ticket should be an object, not \[1\]$"):
        from_plain(Ticket, [1])


def test_the_caller_names_the_place() -> None:
    with pytest.raises(BadInputError, match=r"^profile\.json\.name is missing$"):
        from_plain(Workload, {}, "profile.json")


def test_a_value_that_its_class_refuses_is_bad_input() -> None:
    plain = {"value": 5.0, "low": 1.0, "high": 2.0, "coverage": 0.9, "unit": "s"}
    with pytest.raises(BadInputError, match=r"^Estimate: .*5\.0"):
        from_plain(Estimate, plain)


def test_a_broken_part_deep_in_a_profile_is_named_by_its_path() -> None:
    profile = Profile(
        "p1",
        1.0,
        Workload("w"),
        Host("c", 2.0, 1e9),
        30.0,
        0.1,
        "cgroup-v2",
        "exited",
        0,
        Series(time=(0.0, 0.1)),
    )
    plain = to_plain(profile)
    plain["series"]["time"][1] = "late"
    with pytest.raises(BadInputError, match=r"^Profile\.series\.time\[1\] should be float, not 'late'$"):
        from_plain(Profile, plain)


def test_a_tuple_of_so_many_parts_has_so_many() -> None:
    plain = to_plain(Launch("k", Workload("w"), (("n", 1),), 1.0, 1.0))
    with pytest.raises(BadInputError, match=r"parts\[0\] should have 2 parts, not 3"):
        from_plain(Launch, {**plain, "parts": [["n", 1, 2]]})
