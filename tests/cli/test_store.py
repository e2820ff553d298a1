"""`trimtab store` as a user runs it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.store import Role, open_store

Trimtab = Callable[..., Any]


def test_a_store_is_described_and_checked(trimtab: Trimtab) -> None:
    with open_store() as store:
        store.tokens.make("ci", "vision", Role.USER)
    known = json.loads(trimtab("store", "info", "--json").out)
    assert known["rows"]["tokens"] == 1
    assert known["schema"] == "0003"
    shown = trimtab("store", "info").out
    assert "schema   0003" in shown
    assert known["name"] in shown
    assert "is sound" in trimtab("store", "check").out
    assert "has schema 0003 already" in trimtab("store", "migrate").out


def test_a_fresh_store_is_migrated_from_nothing(trimtab: Trimtab) -> None:
    assert "went from schema none to 0003" in trimtab("store", "migrate").out


def test_damage_is_said_and_exits_with_one(trimtab: Trimtab) -> None:
    with open_store() as store, store._database.writing() as connection:
        connection.exec_driver_sql("DROP TRIGGER events_refuse_delete")
        connection.exec_driver_sql("DROP TRIGGER events_refuse_update")
        connection.exec_driver_sql("DROP TRIGGER events_refuse_replace")
    found = trimtab("store", "check")
    assert found.status == 1
    assert found.out.startswith("events ")
    assert "trigger" in found.out


def test_a_backup_comes_back(trimtab: Trimtab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store() as store:
        store.events.append("tick", "clock", {}, 1.0)
    file = tmp_path / "kept.backup"
    assert trimtab("store", "backup", str(file)).out == f"wrote 1 rows to {file}\n"
    again = trimtab("store", "backup", str(file))
    assert (again.status, str(file) in again.error) == (2, True)
    refused = trimtab("store", "restore", str(file))
    assert refused.status == 2
    assert "replace all of them with --replace" in refused.error
    assert "restored 1 rows into" in trimtab("store", "restore", str(file), "--replace").out
    monkeypatch.setenv("TRIMTAB_STORE", f"sqlite:///{tmp_path}/other.sqlite")
    assert "restored 1 rows into" in trimtab("store", "restore", str(file)).out
    with open_store() as store:
        assert [event.kind for event in store.events.since(0)] == ["tick"]
