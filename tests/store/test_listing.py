"""Every page is a range of an index: no rows are sorted, and none of others are passed by."""

import itertools
from typing import Any

import pytest
from sqlalchemy import create_engine

from trimtab.store import JobState, Store, WantedDecisions, WantedEvents, WantedJobs, WantedProfiles
from trimtab.store.address import resolve
from trimtab.store.database import Database
from trimtab.store.prepared import Prepared

PLACES = (None, ("t",))


@pytest.fixture
def plans(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What SQLite says it will do for each statement that is fetched from now on."""
    found: list[list[str]] = []
    engine = create_engine(resolve(url).url)
    fetch = Database.fetch

    def explained(self: Database, shape: Any, build: Any, values: Any) -> Any:
        prepared = Prepared(build(), engine.dialect)
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
        store.ledger.page(5, WantedDecisions(kind, subject, since, since, tenants))
    for tenants, name, states in itertools.product(PLACES, both, ((), (JobState.RUNNING,))):
        store.jobs.page(5, WantedJobs(states, name, tenants=tenants))
    for tenants, workload in itertools.product(PLACES, both):
        store.profiles.page(5, WantedProfiles(workload, tenants=tenants))
    assert len(plans) == 16 + 8 + 4
    assert [plan for plan in plans if not walks_an_index(plan)] == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_every_page_of_events_is_a_range_of_an_index(store: Store, plans: list[list[str]]) -> None:
    both = (None, "x")
    for tenants, kind, subject in itertools.product(PLACES, both, both):
        wanted = WantedEvents(kind, subject, tenants)
        store.events.page(5, wanted)
        store.events.since(7, 5, wanted)
    assert len(plans) == 16
    assert [plan for plan in plans if len(plan) != 1 or "TEMP B-TREE" in plan[0]] == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_several_tenants_are_merged_from_a_range_each(store: Store, plans: list[list[str]]) -> None:
    store.ledger.page(5, WantedDecisions(tenants=["a", "b", "c"]))
    (plan,) = plans
    searched = [step for step in plan if "decisions_tenant" in step]
    assert len(searched) == 3
    assert all("tenant=?" in step for step in searched)
