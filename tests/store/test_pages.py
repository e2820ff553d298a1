"""Pages together are the list, whoever writes meanwhile, and show each tenant its own alone."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError, Decision, NotFoundError, Outcome, Profile, to_plain
from trimtab.store import (
    JobRecord,
    JobState,
    Page,
    Store,
    WantedDecisions,
    WantedEvents,
    WantedJobs,
    WantedProfiles,
)

serial = itertools.count()


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
    wanted = WantedDecisions(
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
    newest = sorted(made, key=lambda each: (each.created, each.id), reverse=True)
    some = (JobState.RUNNING, JobState.ENDED)
    for wanted, right in (
        (WantedJobs(), newest),
        (WantedJobs(some), [each for each in newest if each.state in some]),
        (WantedJobs(some, tenants=["b"]), [j for j in newest if j.state in some and j.tenant == "b"]),
        (WantedJobs(some, tenants=["b", "a"]), [j for j in newest if j.state in some]),
        (WantedJobs(name="name-a"), [j for j in newest if j.tenant == "a"]),
        (WantedJobs(since=2.0, until=5.0), [j for j in newest if 2.0 <= j.created < 5.0]),
        (WantedJobs(name="\0"), []),
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
    ((id, text),) = store.events.since_text(0)
    assert (id, json.loads(text)) == (event.id, to_plain(event))


def test_events_are_by_kind_subject_and_tenant_from_both_ends(store: Store) -> None:
    for n in range(12):
        store.events.append("kl"[n % 2], f"s{n % 3}", {"n": n}, float(n), "ab"[n % 4 // 2])
    everything = store.events.since(0)
    assert store.events.newest() == everything[-1].id
    for wanted in (
        WantedEvents(),
        WantedEvents("k"),
        WantedEvents(subject="s1"),
        WantedEvents("l", "s1"),
        WantedEvents("l", "s1", ["a"]),
        WantedEvents(tenants=["a", "b"]),
        WantedEvents(tenants=[]),
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
            found = [each.id for each in all_pages(lambda after: store.ledger.page(7, after=after))]
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
        lambda after: store.ledger.page(1, WantedDecisions(tenants=["a"]), after),
        lambda after: store.jobs.page(1, after=after),
        lambda after: store.profiles.page(1, WantedProfiles(), after),
        lambda after: store.events.page(1, after=after),
    ):
        for after in ("nothing", "", "\0", "d2", "-1", "1.5", "9" * 30, "é"):
            with pytest.raises(BadInputError, match="no list goes on after"):
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
    with pytest.raises(NotFoundError, match=r"several decisions: aa2, aa3; give"):
        store.ledger.get("aa", ["b"])
    with pytest.raises(NotFoundError, match=r'no decision "zz"; the newest are aa3, aa2$'):
        store.ledger.get("zz", ["b"])
    with pytest.raises(NotFoundError, match=r'no decision "aa1"; there are no decisions yet$'):
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
    with pytest.raises(BadInputError, match="d1 is already kept"):
        store.ledger.record(make_decision("d1"), "b")
