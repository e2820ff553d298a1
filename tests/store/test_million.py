"""A store with a million decisions answers as soon as a small one."""

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.core import Decision, to_plain
from trimtab.store import DecisionFilter, JobFilter, JobRecord, JobState, Store, open_store

DECISIONS = 1_000_000
JOBS = 10_000
FILL = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
INSERT INTO decisions (id, created, kind, subject, tenant, body)
SELECT printf('%08x', i), i, 'kind-' || (i % 5), 'subject-' || (i % 1000), 'tenant-' || (i % 20), ? FROM n
"""


def large(path: Path, body: str) -> Store:
    store = open_store(f"sqlite:///{path}")
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute(FILL, (DECISIONS, body))
    raw.commit()
    raw.close()
    states = list(JobState)
    store.jobs.submit(
        [
            JobRecord(f"j{n:05}", float(n), "job", f"tenant-{n % 20}", "app", states[n % 8], {"n": n})
            for n in range(JOBS)
        ]
    )
    return store


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_every_page_of_a_million_decisions_takes_less_than_fifty_milliseconds(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    one = ["tenant-5"]
    half = f"{DECISIONS // 2:08x}"
    with large(tmp_path / "s.sqlite", json.dumps(to_plain(make_decision("d")))) as store:
        calls: dict[str, Callable[[], object]] = {
            "newest": lambda: store.ledger.page_text(20),
            "from the middle": lambda: store.ledger.page_text(20, after=half),
            "kind": lambda: store.ledger.page_text(20, DecisionFilter("kind-3")),
            "subject": lambda: store.ledger.page_text(20, DecisionFilter(subject="subject-7")),
            "both": lambda: store.ledger.page_text(20, DecisionFilter("kind-0", "subject-5")),
            "tenant": lambda: store.ledger.page_text(20, DecisionFilter(tenants=one)),
            "tenant's kind": lambda: store.ledger.page_text(20, DecisionFilter("kind-0", tenants=one)),
            "nothing": lambda: store.ledger.page_text(20, DecisionFilter("none", tenants=one)),
            "one": lambda: store.ledger.text(half),
            "jobs": lambda: store.jobs.page_text(20, JobFilter((JobState.RUNNING,), tenants=one)),
            "as objects": lambda: store.ledger.page(20),
        }
        taken = {}
        for name, ask in calls.items():
            ask()
            begin = time.perf_counter()
            for _ in range(20):
                ask()
            taken[name] = (time.perf_counter() - begin) / 20
        print({name: f"{1000 * seconds:.2f} ms" for name, seconds in taken.items()})
        assert {name: seconds for name, seconds in taken.items() if seconds >= 0.05} == {}
