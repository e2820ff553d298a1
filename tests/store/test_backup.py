"""Backups hold all there was at one moment, and come back whole into either database, or not at all."""

import gzip
import hashlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.core import BadInputError, Decision, Outcome, Profile
from trimtab.store import JobRecord, JobState, Reply, Role, Store, Tenant, open_store


@pytest.fixture
def full(store: Store, make_decision: Callable[..., Decision], make_profile: Callable[..., Profile]) -> Store:
    """A store with something of everything."""
    for n in range(5):
        store.ledger.record(make_decision(f"d{n}", created=float(n), action={"x": float("inf")}), f"t{n % 2}")
    store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
    store.profiles.save(make_profile("p1"), "t1")
    for n in range(3):
        store.events.append("tick", "clock", {"n": n, "text": 'a "quoted" \u00e9\n'}, float(n), "t0")
    store.jobs.submit([JobRecord("j1", 1.0, "job", "t0", "app", JobState.WAITING, {"budget": float("inf")})])
    store.tenants.put(Tenant("t0", None, 1.0, 2.0, None))
    store.notes.put("scheduler", {"a": [1]}, 5.0)
    store.tokens.make("ci", "t0", Role.USER)
    store.replies.once("k", "ann", "f", lambda: Reply(200, "{}"))
    return store


def contents(store: Store) -> list[Any]:
    return [
        store.ledger.page_text(100).items,
        store.ledger.outcomes("d1"),
        store.profiles.page_text(100).items,
        store.events.page_text(100).items,
        store.jobs.page_text(100).items,
        store.tenants.list(),
        store.notes.get("scheduler"),
        store.tokens.page().items,
        store.replies.find("k", "ann", "f"),
    ]


def other_database(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> str:
    if url.startswith("sqlite"):
        return str(request.getfixturevalue("postgres").new_database())
    return f"sqlite:///{tmp_path}/other.sqlite"


def test_a_backup_moves_all_from_one_database_to_the_other_and_on(
    full: Store,
    url: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    make_decision: Callable[..., Decision],
) -> None:
    result: list[tuple[int, int]] = []
    rows = full.back_up(tmp_path / "b", lambda done, total: result.append((done, total)))
    assert result[-1] == (rows, rows)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    with open_store(other_database(request, url, tmp_path)) as other:
        assert other.restore(tmp_path / "b") == rows
        assert contents(other) == contents(full)
        assert other.faults() == ()
        other.ledger.record(make_decision("new"))
        assert other.events.append("tick", "clock", {}, 1.0) > max(e.id for e in full.events.since(0))


def test_a_store_that_holds_something_is_replaced_only_when_asked(
    full: Store, tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    full.back_up(tmp_path / "b")
    before = contents(full)
    full.ledger.record(make_decision("later"))
    with pytest.raises(BadInputError, match=r"\d+ rows .*--replace"):
        full.restore(tmp_path / "b")
    assert full.ledger.get("later")
    full.restore(tmp_path / "b", replace=True)
    assert contents(full) == before
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path))):
        full.back_up(tmp_path / "b")


def damaged(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(b"All happy families are alike."),
        lambda path: damaged(path, lambda data: data.replace(b"memory bandwidth", b"Memory bandwidth", 1)),
        lambda path: damaged(path, lambda data: data.rsplit(b"\n", 2)[0] + b"\n"),
        lambda path: damaged(path, lambda data: data + b"[]\n"),
        lambda path: damaged(path, lambda data: b'{"trimtab": "else"}\n'),
        lambda path: damaged(path, lambda data: b"[]\n"),
        lambda path: path.unlink(),
    ],
    ids=["short", "text", "changed", "no end", "longer", "other", "empty", "gone"],
)
def test_a_damaged_backup_is_refused_and_the_store_stays(
    tmp_path: Path, make_decision: Callable[..., Decision], damage: Callable[[Path], None]
) -> None:
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        store.ledger.record(make_decision("d1"))
        store.back_up(tmp_path / "b")
        damage(tmp_path / "b")
        with pytest.raises(BadInputError) as refusal:
            store.restore(tmp_path / "b", replace=True)
        assert str(tmp_path / "b") in str(refusal.value)
        assert store.ledger.get("d1") == make_decision("d1")


def test_a_restore_that_is_interrupted_leaves_the_store_as_it_was(full: Store, tmp_path: Path) -> None:
    full.back_up(tmp_path / "b")
    before = contents(full)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        full.restore(tmp_path / "b", replace=True, progress=interrupt)
    assert contents(full) == before


def test_a_backup_that_is_interrupted_leaves_no_file(full: Store, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "backups"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        full.back_up(folder / "b", interrupt)
    assert list(folder.iterdir()) == []


def test_a_backup_is_of_one_moment_while_others_write(
    store: Store, url: str, tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    enough, stop = threading.Event(), threading.Event()

    def write() -> None:
        # Each decision has its event in the same transaction, so every moment has as many of both.
        for n in range(100_000):
            with store.together():
                store.events.append("decided", f"d{n}", {}, 1.0)
                store.ledger.record(make_decision(f"d{n}"))
            if n == 20:
                enough.set()
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert enough.wait(60)
        for n in range(3):
            store.back_up(tmp_path / f"b{n}")
    finally:
        stop.set()
        writer.join()
    for n in range(3):
        with open_store(f"sqlite:///{tmp_path}/copy{n}.sqlite") as copy:
            copy.restore(tmp_path / f"b{n}")
            decided = {decision.id for decision in copy.ledger.list(100_000)}
            assert decided == {event.subject for event in copy.events.since(0, 100_000)}
            assert len(decided) > 20


def test_a_backup_of_an_older_schema_is_brought_up_to_date(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        store.ledger.record(make_decision("d1"))
        store.back_up(tmp_path / "b")
    older(tmp_path / "b")
    with open_store(f"sqlite:///{tmp_path}/new.sqlite") as store:
        store.restore(tmp_path / "b")
        assert store.ledger.get("d1", ["default"]) == make_decision("d1")
        assert store.facts().schema == "0003"


def older(path: Path) -> None:
    """Make a backup one of the schema before tenants had everything."""
    header, *rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()][:-1]
    decisions = header["tables"]["decisions"]["columns"]
    kept = {"decisions": {"columns": [c for c in decisions if c != "tenant"], "rows": 1}}
    header |= {"schema": "0002", "tables": kept}
    row = [value for name, value in zip(decisions, rows[0], strict=True) if name != "tenant"]
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in (header, row))
    end = json.dumps({"sha256": hashlib.sha256(lines).hexdigest()}).encode()
    path.write_bytes(gzip.compress(lines + end + b"\n"))
