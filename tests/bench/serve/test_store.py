"""A filled store has what it should, is made once, and replaces the one that other code made."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from trimtab_bench.serve import store as world
from trimtab_bench.serve.store import StoreSize, kept_store

from trimtab.core import home
from trimtab.store import DecisionFilter, JobState, open_store

SMALL = StoreSize(jobs=60, decisions=200, events=100, profiles=20)


def test_a_store_is_filled_once_and_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    outdated = home() / "bench" / "serve" / "0123456789abcdef" / "200-decisions.sqlite"
    outdated.parent.mkdir(parents=True)
    outdated.touch()
    file = kept_store(SMALL)
    made = file.stat().st_mtime_ns
    assert kept_store(SMALL).stat().st_mtime_ns == made
    assert not outdated.exists()
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    with open_store(f"sqlite:///{file}") as store:
        assert store.faults() == ()
        assert store.facts().rows["decisions"] == 200
        for whose in (0, 7):
            name = world.tenant(whose)
            newest = store.ledger.page(1, DecisionFilter(tenants=[name])).items[0]
            assert newest.id == world.decision_id(world.nth_of(whose, 1.0, 200))
            assert (newest.kind, newest.subject) == (
                world.decision_kind(180 + whose),
                world.subject(180 + whose),
            )
            assert store.ledger.outcomes(world.decision_id(10))[0].measured["time"] == 7000.0
        states = [store.jobs.get(world.job_id(number)).state for number in range(60)]
        assert states[-6:] == [JobState.WAITING] * 6
        assert JobState.WAITING not in states[:-6]
        assert store.profiles.get(world.profile_id(19)).id == world.profile_id(19)
        assert store.events.newest() == 100


def test_ids_differ_and_are_as_long_as_real_ones() -> None:
    jobs = {world.job_id(number) for number in range(10_000)}
    decisions = {world.decision_id(number) for number in range(10_000)}
    assert len(jobs) == len(decisions) == 10_000
    assert {len(id) for id in jobs} == {8}
    assert {len(id) for id in decisions} == {12}


@given(st.integers(0, world.TENANTS - 1), st.floats(0.0, 1.0), st.integers(world.TENANTS, 10**6))
def test_a_tenants_nth_thing_is_its_own_and_there(whose: int, place: float, count: int) -> None:
    number = world.nth_of(whose, place, count)
    assert 0 <= number < count
    assert world.tenant(number) == world.tenant(whose)


@given(st.none() | st.integers(0, world.TENANTS - 1), st.integers(2 * world.TENANTS, 10**6))
def test_after_what_is_nearly_last_there_is_one_page_and_it_is_not_empty(
    whose: int | None, count: int
) -> None:
    number = world.nearly_last(whose, 30, count)
    own = range(whose or 0, number, 1 if whose is None else world.TENANTS)
    assert 0 < len(own) <= 30
    assert number < count


def test_every_tenant_has_decisions_of_every_kind_and_subjects_of_its_own() -> None:
    numbers = range(10_000)
    kinds = {(world.tenant(n), world.decision_kind(n)) for n in numbers}
    assert len(kinds) == world.TENANTS * len(world.DECISION_KINDS)
    assert len({(world.tenant(n), world.subject(n)) for n in numbers}) == world.SUBJECTS
