"""One leads; another takes over when that one dies or stops, never before it knows."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from trimtab.core import Decision
from trimtab.store import LostLeadError, Store, open_store

# Leads as soon as it can, says so, and then decides all the time until it leads no more.
CANDIDATE = """
import sys, time
from trimtab.core import StorageError
from trimtab.store import LostLeadError, open_store

with open_store(sys.argv[1]) as store, store.leader("test") as leader:
    print("ready", flush=True)
    while not leader.wait(0.5):
        pass
    held = store.under(leader)
    print("leads", time.time(), flush=True)
    while True:
        try:
            held.events.append("decided", sys.argv[2], {}, time.time())
        except LostLeadError:
            print("lost", time.time(), flush=True)
            break
        except StorageError:
            pass  # this write failed, as when its connection was cut; the next says who leads
        time.sleep(0.05)
"""


@contextmanager
def candidate(url: str, name: str) -> Iterator["subprocess.Popen[str]"]:
    child = subprocess.Popen([sys.executable, "-c", CANDIDATE, url, name], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def output(child: "subprocess.Popen[str]", word: str) -> float:
    """When the child said `word`."""
    assert child.stdout is not None
    result, when = child.stdout.readline().split()
    assert result == word
    return float(when)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_another_takes_over(postgres: Any, number: signal.Signals) -> None:
    url = postgres.new_database()
    with candidate(url, "first") as first:
        output(first, "leads")
        with candidate(url, "second") as second:
            with open_store(url) as store:
                while not store.events.newest():  # the first has decided something
                    time.sleep(0.01)
            os.kill(first.pid, number)
            output(second, "leads")
            if number == signal.SIGSTOP:
                first.send_signal(signal.SIGCONT)
                output(first, "lost")
            with open_store(url) as store:
                deciders = [event.subject for event in store.events.since(0)]
            assert "first" in deciders
            assert deciders == sorted(deciders)


def test_a_leader_whose_session_is_ended_notices_before_another_leads(postgres: Any) -> None:
    url = postgres.new_database()
    with open_store(url) as store, store.leader("test") as leader, store.leader("test") as other:
        assert leader.wait(0.0)
        assert leader.holds()
        assert not other.wait(0.0)
        postgres.execute(
            url.rpartition("/")[2],
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted",
        )
        assert leader.lost.wait(60.0)
        assert not leader.holds()
        assert other.wait(60.0)
        assert leader.lost.is_set()


def test_what_an_old_leader_decides_is_not_kept(
    postgres: Any, make_decision: Callable[..., Decision], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    with open_store(url) as store, store.leader("test") as old:
        assert old.wait(0.0)
        held = store.under(old)
        held.ledger.record(make_decision("d1"))
        # As if this process had been stopped right after it had looked whether it leads.
        monkeypatch.setattr(old, "holds", lambda: True)
        with psycopg.connect(url, autocommit=True) as next_one:
            next_one.execute("UPDATE leaders SET term = term + 1")
        with pytest.raises(LostLeadError, match="test"):
            held.ledger.record(make_decision("d2"))
        with pytest.raises(LostLeadError), held.together():
            pass
        store.ledger.record(make_decision("d3"))
        assert {decision.id for decision in store.ledger.list()} == {"d1", "d3"}


def test_the_next_leader_waits_for_a_decision_that_is_on_its_way(
    postgres: Any, make_decision: Callable[..., Decision]
) -> None:
    url = postgres.new_database()
    with open_store(url) as store, store.leader("test") as old:
        assert old.wait(0.0)
        with store.under(old).together():
            store.ledger.record(make_decision("d1"))
            with psycopg.connect(url, autocommit=True) as next_one:
                next_one.execute("SET lock_timeout = 200")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    next_one.execute("UPDATE leaders SET term = term + 1")


def test_a_file_is_led_by_one_and_by_the_next_when_that_one_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_decision: Callable[..., Decision]
) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        first, second = store.leader("test"), store.leader("test")
        assert first.wait(0.0)
        assert not second.wait(0.2)
        store.under(first).ledger.record(make_decision("d1"))
        first.leave()
        assert first.lost.is_set()
        assert second.wait(0.0)
        assert not second.lost.is_set()
        assert not store.leader("test").wait(0.0)
        assert store.leader("other").wait(0.0)
        second.leave()


def test_who_leaves_lets_another_lead_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    with store.leader("test") as first:
        assert first.wait(0.0)
    with store.leader("test") as second:
        assert second.wait(60.0)
