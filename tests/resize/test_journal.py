"""Grants in the ledger: each is a decision with its reason, and a full disk ends nothing."""

import logging

import pytest

from trimtab.core import Decision, StorageError
from trimtab.resize import Grant, GrantJournal

MIB = 2.0**20
GIVEN = Grant("/shop/a", "shop", 64 * MIB, 80 * MIB, 0.002)
REFUSED = Grant("/shop/a", "shop", 64 * MIB, 64 * MIB, 0.002)


def test_a_grant_and_a_kill_are_decisions_that_say_why() -> None:
    kept = list[Decision]()
    with GrantJournal(kept.append) as journal:
        journal(GIVEN)
        journal(REFUSED)
    given, refused = kept
    assert (given.kind, given.subject) == ("resize", "/shop/a")
    assert given.action == {"memory_bytes": 80 * 2**20, "killed": False}
    assert given.reason == "ran out of 64 MiB in the pool shop: 80 MiB since then, after 2 ms"
    assert refused.action["killed"] is True
    assert "the kernel killed" in refused.reason


def test_what_cannot_be_kept_is_said_once_and_the_next_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    tried = list[Decision]()

    def full(made: Decision) -> None:
        tried.append(made)
        raise StorageError("the disk is full")

    with caplog.at_level(logging.WARNING), GrantJournal(full) as journal:
        for _ in range(3):
            journal(GIVEN)
    assert len(tried) == 3
    said = [record.getMessage() for record in caplog.records if record.name.startswith("trimtab")]
    assert said == ["a grant is not in the ledger: the disk is full"]
