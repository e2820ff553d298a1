"""What was acknowledged is there after any crash, and concurrent writers lose nothing."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from trimtab.core import Decision, StorageError
from trimtab.store import Store, open_store

WRITES = 1000
KILL_AFTER = 300

# Prints the id of each decision only after the store has acknowledged it.
WRITER = """
import sys
from trimtab.core import Answer, Decision
from trimtab.store import open_store

url, name, writes = sys.argv[1], sys.argv[2], int(sys.argv[3])
rule = Answer("rule", {"n": 1})
with open_store(url) as store:
    for n in range(writes):
        id = f"{name}-{n:04}"
        store.ledger.record(Decision(id, n, "k", name, {}, {}, "rule", rule, None, (), "why" * 100))
        print(id, flush=True)
"""


# Many threads share commits, and each prints only what was acknowledged to it.
TOGETHER = """
import sys, threading
from trimtab.store import open_store

url, threads = sys.argv[1], int(sys.argv[2])
said = threading.Lock()

def write(number):
    for n in range(100_000):
        store.events.append("wrote", f"{number}-{n}", {}, 1.0)
        with said:
            print(f"{number}-{n}", flush=True)

with open_store(url) as store:
    for number in range(threads):
        threading.Thread(target=write, args=(number,), daemon=True).start()
    threading.Event().wait()
"""


def start_writer(url: str, name: str, writes: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, url, name, str(writes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def acknowledged_until(writer: "subprocess.Popen[str]", crash: Callable[[], None]) -> list[str]:
    """The ids that `writer` printed, with a `crash` in the middle of its work."""
    assert writer.stdout is not None
    ids = [writer.stdout.readline().strip() for _ in range(KILL_AFTER)]
    crash()
    ids += writer.stdout.read().split()
    assert writer.wait(30) != 0
    assert KILL_AFTER <= len(ids) < WRITES
    return ids


def kept(url: str) -> list[str]:
    with open_store(url) as store:
        return sorted(decision.id for decision in store.ledger.list(10 * WRITES))


def assert_nothing_lost(url: str, acknowledged: list[str]) -> None:
    found = kept(url)
    assert found[: len(acknowledged)] == acknowledged
    # The write under way at the crash may be there whole, or not at all.
    assert len(found) <= len(acknowledged) + 1


def test_an_acknowledged_write_survives_kill_9(url: str) -> None:
    writer = start_writer(url, "w", WRITES)
    assert_nothing_lost(url, acknowledged_until(writer, writer.kill))


def test_an_acknowledged_write_survives_kill_9_of_the_server(postgres: Any) -> None:
    url = postgres.new_database()
    writer = start_writer(url, "w", WRITES)
    try:
        acknowledged = acknowledged_until(writer, postgres.kill)
    finally:
        postgres.start()
    assert_nothing_lost(url, acknowledged)


def test_an_open_store_outlives_a_restart_of_the_server(
    postgres: Any, make_decision: Callable[..., Decision]
) -> None:
    with open_store(postgres.new_database()) as store:
        store.ledger.record(make_decision("before"))
        postgres.kill()
        try:
            with pytest.raises(StorageError, match="reached"):
                store.ledger.record(make_decision("during"))
        finally:
            postgres.start()
        store.ledger.record(make_decision("after"))
        assert {decision.id for decision in store.ledger.list()} == {"before", "after"}


def test_concurrent_writers_wait_for_each_other_and_lose_nothing(url: str) -> None:
    writers = [start_writer(url, name, 150) for name in ("a", "b", "c")]
    acknowledged = [id for writer in writers for id in writer.communicate()[0].split()]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(acknowledged) == 450
    assert kept(url) == sorted(acknowledged)


def test_what_shares_a_commit_survives_kill_9(url: str) -> None:
    command = [sys.executable, "-c", TOGETHER, url, "8"]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip() for _ in range(KILL_AFTER)]
    writer.kill()
    acknowledged += writer.stdout.read().split()
    writer.wait()
    with open_store(url) as store:
        kept = [event.subject for event in store.events.since(0, 1_000_000)]
    assert set(acknowledged) <= set(kept)
    assert len(kept) == len(set(kept)) <= len(acknowledged) + 8


def test_moving_the_log_keeps_everything_and_waits_for_nobody(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    with store.together():
        store.ledger.record(make_decision("d1"))
        store.move_log()
    store.move_log()
    assert store.ledger.get("d1").id == "d1"
