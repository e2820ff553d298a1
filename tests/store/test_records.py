"""What is common to decisions and profiles: round trips, ids and prefixes."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import create_engine

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
    Outcome,
    Profile,
    Series,
    Steps,
    Workload,
    to_plain,
)
from trimtab.store import (
    DecisionFilter,
    EventFilter,
    JobFilter,
    JobRecord,
    JobState,
    Page,
    ProfileFilter,
    Store,
)
from trimtab.store.database import CompiledStatement, Database, resolve

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
    with pytest.raises(NotFoundError, match=r'"a1" .*decisions: a1b, a1c'):
        store.ledger.get("a1")


def test_many_candidates_are_cut_short(store: Store, make_decision: Callable[..., Decision]) -> None:
    for index in range(9):
        store.ledger.record(make_decision(f"a{index}"))
    with pytest.raises(NotFoundError, match="a0, a1, a2, a3, a4, …"):
        store.ledger.get("a")


def test_an_unknown_id_is_refused_with_the_newest_ones(
    store: Store, make_profile: Callable[..., Profile]
) -> None:
    with pytest.raises(NotFoundError, match=r'profile "zz" in '):
        store.profiles.get("zz")
    store.profiles.save(make_profile("p1", created=1.0))
    store.profiles.save(make_profile("p2", created=2.0))
    with pytest.raises(NotFoundError, match=r'profile "zz" in .*p2, p1'):
        store.profiles.get("zz")


@pytest.mark.parametrize("id", ["", "\0", "\ud800"])
def test_an_id_that_no_record_can_have_is_unknown(
    store: Store, make_decision: Callable[..., Decision], id: str
) -> None:
    store.ledger.record(make_decision("a1"))
    with pytest.raises(NotFoundError, match="a1"):
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
    with pytest.raises(BadInputError, match="decision a1 "):
        store.ledger.record(make_decision("a1", reason="another"))
    assert store.ledger.get("a1") == make_decision("a1")


def test_a_value_that_is_not_a_number_is_refused_and_nothing_is_kept(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    with pytest.raises(BadInputError, match="NaN"):
        store.ledger.record(make_decision("a1", action={"x": float("nan")}))
    assert store.ledger.list() == ()


def test_a_limit_below_one_is_refused_and_a_huge_one_is_not(store: Store) -> None:
    with pytest.raises(BadInputError, match="limit of 0"):
        store.ledger.list(0)
    assert store.ledger.list(10**30) == ()


PLACES = (None, ("t",))


@pytest.fixture
def plans(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What SQLite says it will do for each statement that is fetched from now on."""
    found: list[list[str]] = []
    engine = create_engine(resolve(url).url)
    fetch = Database.fetch

    def explained(self: Database, shape: Any, build: Any, values: Any) -> Any:
        prepared = CompiledStatement(build(), engine.dialect)
        given = {**values, **prepared._own}
        arguments = tuple(given[name] for name in prepared._order or ())
        with engine.connect() as connection:
            steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {prepared._sql}", arguments)
            found.append([step[3] for step in steps])
        return fetch(self, shape, build, values)

    monkeypatch.setattr(Database, "fetch", explained)
    return found


def walks_an_index(plan: list[str]) -> bool:
    return len(plan) == 1 and plan[0].startswith(("SEARCH", "SCAN")) and "INDEX" in plan[0]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_every_page_is_a_range_of_an_index(store: Store, plans: list[list[str]]) -> None:
    both = (None, "x")
    for tenants, kind, subject, since in itertools.product(PLACES, both, both, (None, 5.0)):
        store.ledger.page(5, DecisionFilter(kind, subject, since, since, tenants))
    for tenants, name, states in itertools.product(PLACES, both, ((), (JobState.RUNNING,))):
        store.jobs.page(5, JobFilter(states, name, tenants=tenants))
    for tenants, workload in itertools.product(PLACES, both):
        store.profiles.page(5, ProfileFilter(workload, tenants=tenants))
    assert len(plans) == 16 + 8 + 4
    assert [plan for plan in plans if not walks_an_index(plan)] == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_every_page_of_events_is_a_range_of_an_index(store: Store, plans: list[list[str]]) -> None:
    both = (None, "x")
    for tenants, kind, subject in itertools.product(PLACES, both, both):
        wanted = EventFilter(kind, subject, tenants)
        store.events.page(5, wanted)
        store.events.since(7, 5, wanted)
    assert len(plans) == 16
    assert [plan for plan in plans if len(plan) != 1 or "TEMP B-TREE" in plan[0]] == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_several_tenants_are_merged_from_a_range_each(store: Store, plans: list[list[str]]) -> None:
    store.ledger.page(5, DecisionFilter(tenants=["a", "b", "c"]))
    (plan,) = plans
    searched = [step for step in plan if "decisions_tenant" in step]
    assert len(searched) == 3
    assert all("tenant=?" in step for step in searched)


def all_pages(page: Callable[[str | None], Page[Any]]) -> Iterator[Any]:
    after = None
    while True:
        found = page(after)
        yield from found.items
        after = found.next
        if after is None:
            return
        assert found.items


def job(id: str, created: float, tenant: str, state: JobState = JobState.WAITING) -> JobRecord:
    return JobRecord(id, created, f"name-{tenant}", tenant, "app", state, {"command": ["true"], "x": [1.5]})


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    made=st.lists(
        st.tuples(st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from("ab"), st.sampled_from("kl")), max_size=12
    ),
    limit=st.integers(1, 5),
    tenants=st.sampled_from([None, ["a"], ["b"], ["a", "b"], ["b", "a", "a"], [], ["c"]]),
    kind=st.sampled_from([None, "k"]),
    subject=st.sampled_from([None, "s1"]),
    bounds=st.sampled_from([(None, None), (2.0, None), (None, 3.0), (2.0, 3.0)]),
)
def test_pages_of_decisions_together_are_what_was_asked_for(
    store: Store,
    make_decision: Callable[..., Decision],
    made: list[tuple[float, str, str]],
    limit: int,
    tenants: list[str] | None,
    kind: str | None,
    subject: str | None,
    bounds: tuple[float | None, float | None],
) -> None:
    salt = f"{next(serial)}."
    expected = []
    for created, tenant, of in made:
        decision = make_decision(
            f"{salt}{next(serial)}", created=created, kind=salt + of, subject=f"{salt}s{next(serial) % 2}"
        )
        store.ledger.record(decision, salt + tenant)
        expected.append((decision, tenant))
    wanted = DecisionFilter(
        None if kind is None else salt + kind,
        None if subject is None else salt + subject,
        *bounds,
        None if tenants is None else [salt + tenant for tenant in tenants],
    )
    found = list(all_pages(lambda after: store.ledger.page(limit, wanted, after)))
    if tenants is None:
        found = [decision for decision in found if decision.id.startswith(salt)]
    since, until = bounds
    right = [
        decision
        for decision, tenant in reversed(expected)
        if (tenants is None or tenant in tenants)
        and (kind is None or decision.kind == salt + kind)
        and (subject is None or decision.subject == salt + subject)
        and (since is None or decision.created >= since)
        and (until is None or decision.created < until)
    ]
    assert found == sorted(right, key=lambda decision: -decision.created)


def test_pages_of_jobs_are_by_tenant_state_and_name(store: Store) -> None:
    states = list(JobState)
    made = [job(f"j{n:02}", float(n % 7), "ab"[n % 2], states[n % len(states)]) for n in range(40)]
    store.jobs.submit(made)
    newest = sorted(made, key=lambda item: (item.created, item.id), reverse=True)
    some = (JobState.RUNNING, JobState.ENDED)
    for wanted, right in (
        (JobFilter(), newest),
        (JobFilter(some), [item for item in newest if item.state in some]),
        (JobFilter(some, tenants=["b"]), [j for j in newest if j.state in some and j.tenant == "b"]),
        (JobFilter(some, tenants=["b", "a"]), [j for j in newest if j.state in some]),
        (JobFilter(name="name-a"), [j for j in newest if j.tenant == "a"]),
        (JobFilter(since=2.0, until=5.0), [j for j in newest if 2.0 <= j.created < 5.0]),
        (JobFilter(name="\0"), []),
    ):
        assert list(all_pages(lambda after, wanted=wanted: store.jobs.page(3, wanted, after))) == right


def test_texts_are_what_the_records_are(
    store: Store, make_decision: Callable[..., Decision], make_profile: Callable[..., Profile]
) -> None:
    decision = make_decision("d1", action={"x": float("inf"), 'é"': None})
    store.ledger.record(decision, "a")
    store.profiles.save(make_profile("p1"), "a")
    store.jobs.submit([job("j1", 1.0, "a")])
    store.events.append("tick", "clock", {"n": [1, None]}, 2.0, "a")
    assert json.loads(store.ledger.text("d1")) == {**to_plain(decision), "tenant": "a"}
    assert json.loads(store.profiles.text("p")) == {**to_plain(make_profile("p1")), "tenant": "a"}
    assert json.loads(store.jobs.text("j1")) == to_plain(store.jobs.get("j1"))
    assert store.ledger.page_text().items == (store.ledger.text("d1"),)
    assert store.profiles.page_text().items == (store.profiles.text("p1"),)
    assert store.jobs.page_text().items == (store.jobs.text("j1"),)
    (event,) = store.events.since(0)
    assert json.loads(store.events.page_text().items[0]) == to_plain(event)


def test_events_are_by_kind_subject_and_tenant_from_both_ends(store: Store) -> None:
    for n in range(12):
        store.events.append("kl"[n % 2], f"s{n % 3}", {"n": n}, float(n), "ab"[n % 4 // 2])
    everything = store.events.since(0)
    assert store.events.newest() == everything[-1].id
    for wanted in (
        EventFilter(),
        EventFilter("k"),
        EventFilter(subject="s1"),
        EventFilter("l", "s1"),
        EventFilter("l", "s1", ["a"]),
        EventFilter(tenants=["a", "b"]),
        EventFilter(tenants=[]),
    ):
        right = [
            event
            for event in everything
            if wanted.kind in (None, event.kind)
            and wanted.subject in (None, event.subject)
            and (wanted.tenants is None or event.tenant in wanted.tenants)
        ]
        assert list(store.events.since(0, 100, wanted)) == right
        pages = all_pages(lambda after, wanted=wanted: store.events.page(2, wanted, after))
        assert list(pages) == right[::-1]


def test_nothing_is_skipped_or_doubled_while_others_write(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    for n in range(60):
        store.ledger.record(make_decision(f"old-{n}", created=float(n % 5)))
    stop, going = threading.Event(), threading.Event()

    def write() -> None:
        for n in itertools.count():
            store.ledger.record(make_decision(f"new-{n}", created=float(n % 8)))
            going.set()
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert going.wait(30)
        for _ in range(3):
            found = [item.id for item in all_pages(lambda after: store.ledger.page(7, after=after))]
            assert len(found) == len(set(found))
            assert {f"old-{n}" for n in range(60)} <= set(found)
    finally:
        stop.set()
        writer.join()


def test_a_place_that_no_page_gave_is_refused(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.ledger.record(make_decision("d1"), "a")
    store.ledger.record(make_decision("d2"), "b")
    store.jobs.submit([job("j1", 1.0, "a")])
    for page in (
        lambda after: store.ledger.page(1, DecisionFilter(tenants=["a"]), after),
        lambda after: store.jobs.page(1, after=after),
        lambda after: store.profiles.page(1, ProfileFilter(), after),
        lambda after: store.events.page(1, after=after),
    ):
        for after in ("nothing", "", "\0", "d2", "-1", "1.5", "9" * 30, "é"):
            with pytest.raises(NotFoundError, match="next"):
                page(after)


def same_words(ask: Callable[[str], object], there: str, nowhere: str) -> None:
    """Asking for what others have is answered in the very words for what nobody has."""
    with pytest.raises(NotFoundError) as hidden:
        ask(there)
    with pytest.raises(NotFoundError) as missing:
        ask(nowhere)
    assert str(hidden.value).replace(there, nowhere) == str(missing.value)


def test_what_another_tenant_has_is_not_there(
    store: Store, make_decision: Callable[..., Decision], make_profile: Callable[..., Profile]
) -> None:
    for id, tenant in (("aa1", "a"), ("aa2", "b"), ("aa3", "b")):
        store.ledger.record(make_decision(id), tenant)
        store.profiles.save(make_profile(id), tenant)
        store.jobs.submit([job(id, 1.0, tenant)])
        store.ledger.record_outcome(Outcome(id, 2.0, {"time": 3.0}))
    for ask in (
        lambda id: store.ledger.get(id, ["a"]),
        lambda id: store.ledger.text(id, ["a"]),
        lambda id: store.ledger.outcomes(id, ["a"]),
        lambda id: store.ledger.record_outcome(Outcome(id, 2.0, {"time": 3.0}), ["a"]),
        lambda id: store.profiles.get(id, ["a"]),
        lambda id: store.jobs.get(id, ["a"]),
        lambda id: store.jobs.text(id, ["a"]),
    ):
        same_words(ask, "aa2", "zz9")
    assert store.ledger.get("aa", ["a"]).id == "aa1"
    assert store.jobs.get("aa", ["a"]).id == "aa1"
    with pytest.raises(NotFoundError, match=r"decisions: aa2, aa3"):
        store.ledger.get("aa", ["b"])
    with pytest.raises(NotFoundError, match=r'decision "zz"; [^/]*aa3, aa2$'):
        store.ledger.get("zz", ["b"])
    with pytest.raises(NotFoundError, match=r'decision "aa1"; [^/]*$'):
        store.ledger.get("aa1", [])
    assert store.profiles.latest(["a"]).id == "aa1"


def test_a_jobs_decision_is_its_tenants(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.jobs.submit([job("j1", 1.0, "a")])
    store.jobs.change(store.jobs.get("j1"), JobState.RUNNING, decision=make_decision("d1"))
    assert store.ledger.get("d1", ["a"]).id == "d1"


def test_the_same_record_of_another_tenant_is_refused(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    store.ledger.record(make_decision("d1"), "a")
    store.ledger.record(make_decision("d1"), "a")
    with pytest.raises(BadInputError, match="decision d1 "):
        store.ledger.record(make_decision("d1"), "b")
