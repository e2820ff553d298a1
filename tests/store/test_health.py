"""What a store says of itself, and that damage is found."""

from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, text

from trimtab.core import Decision, Outcome
from trimtab.store import Store
from trimtab.store.address import resolve
from trimtab.store.schema import REVISIONS


def raw(url: str, *statements: str) -> None:
    engine = create_engine(resolve(url).url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_a_store_knows_its_rows_schema_and_size(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.ledger.record(make_decision("d1"))
    facts = store.facts()
    assert facts.rows["decisions"] == 1
    assert facts.rows["jobs"] == 0
    assert facts.schema == REVISIONS[-1]
    assert facts.size > 10_000
    assert facts.name == store.name


def test_a_sound_store_has_no_faults(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.ledger.record(make_decision("d1", action={"x": float("inf")}))
    store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
    assert store.faults() == ()


def test_lost_triggers_and_orphans_are_found(
    store: Store, url: str, make_decision: Callable[..., Decision]
) -> None:
    store.ledger.record(make_decision("d1"))
    store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
    if url.startswith("sqlite"):
        raw(url, "DROP TRIGGER decisions_refuse_delete", "DROP TRIGGER decisions_refuse_update")
        raw(url, "DROP TRIGGER decisions_refuse_replace", "DELETE FROM decisions")
    else:
        raw(url, "DROP TRIGGER decisions_refuse_change ON decisions")
        raw(url, "ALTER TABLE outcomes DROP CONSTRAINT outcomes_decision_id_fkey", "DELETE FROM decisions")
    assert store.faults() == (
        "1 outcomes are of decisions that are not there",
        "decisions have lost the trigger that keeps history as it was",
    )


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_text_that_is_no_json_is_found(store: Store, url: str) -> None:
    raw(url, "INSERT INTO profiles (id, created, workload, body) VALUES ('p1', 1.0, 'w', '{half')")
    assert store.faults() == ("1 rows of profiles have a body that is no JSON",)
