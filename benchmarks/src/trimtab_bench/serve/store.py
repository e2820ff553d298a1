"""The store that is measured: its records, their tenants, and its file, made once for each size."""

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from trimtab import store as store_package
from trimtab.core import Answer, Decision, Estimate, Host, Outcome, Profile, Series, Workload, home, to_plain
from trimtab.schedule import submissions
from trimtab.store import JobRecord, JobRun, JobState, Role, Store, Tenant, open_store
from trimtab_bench.harness import Kept

TENANTS = 20
DECISION_KINDS = ("resize", "schedule", "recommend", "partition", "tune")
SUBJECTS = 1_000
ALL_TENANTS = "*"

_ODD = 2_654_435_761  # times this, numbers are spread over all ids, and no two alike


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Numbers of jobs, decisions, events and profiles."""

    jobs: int
    decisions: int
    events: int
    profiles: int


FULL = StoreSize(jobs=10_000, decisions=1_000_000, events=200_000, profiles=200)
QUICK = StoreSize(jobs=1_000, decisions=20_000, events=5_000, profiles=40)


def tenant(number: int) -> str:
    """Tenant of the record with a number: each in turn."""
    return f"team-{number % TENANTS:02}"


def decision_id(number: int) -> str:
    """Id of a decision; ids look random to an index, as real ones do."""
    return f"{number * _ODD % 2**48:012x}"


def job_id(number: int) -> str:
    return f"{number * _ODD % 2**32:08x}"


def profile_id(number: int) -> str:
    return f"{(number + 1) * _ODD % 2**48:012x}"


def decision_kind(number: int) -> str:
    """Kind of a decision; every tenant has all kinds."""
    return DECISION_KINDS[number // TENANTS % len(DECISION_KINDS)]


def subject(number: int) -> str:
    """Subject of a decision; every subject is one tenant's."""
    return f"job-{number % SUBJECTS}"


def nth_of(owner: int | None, place: float, count: int) -> int:
    """Number of a tenant's record at a place from 0 (its oldest) to 1 (its newest), of `count` in all.

    `owner` is the tenant's number, or None for the records of all tenants.
    """
    if owner is None:
        return min(count - 1, int(place * count))
    own = (count - owner + TENANTS - 1) // TENANTS
    return owner + TENANTS * min(own - 1, int(place * own))


def nearly_last(owner: int | None, left: int, count: int) -> int:
    """Number of the record with `left` older ones, or half of all where that is less."""
    step = 1 if owner is None else TENANTS
    return (owner or 0) + step * min(left, count // step // 2)


BEGAN = 1_750_000_000.0
"""Time of the oldest record, in seconds since the epoch."""

_APART = 2.5  # s between decisions
_OUTCOMES = 10  # decisions for each that has an outcome
_WAITING = 200  # jobs in the queue
_ENDS = (JobState.ENDED, JobState.ENDED, JobState.ENDED, JobState.FAILED, JobState.CANCELLED)

JOB = {
    "name": "train-resnet",
    "command": "python train.py --epochs 90",
    "resources": {"gpus": 1, "cpus": 1, "memory": "4GiB"},
    "work": 90_000,
    "speeds": {"t4": 12.5},
    "environment": {"EPOCHS": "90"},
    "budget": 1,
}
"""A job as users submit it. Two hours on a T4 at `PRICE` exceed its budget, so it waits."""

PRICE = ("--price", "t4=$10/h")


def kept_store(size: StoreSize) -> Path:
    """File of a filled store; made if it is missing."""
    schema = Path(store_package.__path__[0])
    code = [Path(__file__), schema / "tables.py", *sorted((schema / "migrations").rglob("*.py"))]
    file = Kept.of("serve", size, code).folder / f"{size.decisions}-decisions.sqlite"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f"unfinished-{os.getpid()}.sqlite")
        try:
            fill(unfinished, size)
            unfinished.rename(file)
            # Stores of this size that were made by other code or for another schema: they are large.
            for other in file.parent.parent.glob(f"*/{file.name}"):
                if other != file:
                    shutil.rmtree(other.parent, ignore_errors=True)
        finally:
            for left in file.parent.glob(f"{unfinished.name}*"):
                left.unlink()
    return file


def fill(path: Path, size: StoreSize) -> None:
    with open_store(f"sqlite:///{path}") as store:
        furnish(store, size)
    raw = sqlite3.connect(path)
    try:
        raw.execute("PRAGMA synchronous = OFF")  # an interrupted fill begins anew
        for table, rows in _rows(size).items():
            raw.executemany(f"INSERT INTO {table}", rows)
        raw.commit()
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        raw.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def furnish(store: Store, size: StoreSize) -> None:
    """Add tenants, jobs and profiles."""
    for number in range(TENANTS):
        store.tenants.put(Tenant(tenant(number)))
    store.jobs.submit(tuple(_job(number, size) for number in range(size.jobs)))
    for number in range(size.profiles):
        profile = replace(a_profile(samples=300), id=profile_id(number), created=BEGAN + number)
        store.profiles.save(profile, tenant(number))


def copy_to(path: Path, file: Path) -> None:
    """A copy of a filled store, on the disk before anything is measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, path)
    with path.open("rb") as copied:
        os.fsync(copied.fileno())


def a_decision() -> Decision:
    """A decision like those the scheduler makes."""
    estimates = {
        "time": Estimate(7200.0, 6500.0, 8100.0, 0.9, "s"),
        "cost": Estimate(1.9, 1.7, 2.2, 0.9, "$"),
    }
    rule = Answer("rule:trimtab", {"act": "start", "group": "t4", "workers": 1}, estimates)
    return Decision(
        "id", BEGAN, "schedule", "job-0", rule.action, estimates, rule.who, rule, None, (), "it was next"
    )


def a_profile(samples: int) -> Profile:
    """A profile with so many samples of a run."""
    times = tuple(0.1 * number for number in range(samples))
    series = Series(time=times, cpu=(1.5,) * samples, memory=(2e9,) * samples)
    host = Host("a processor", 2.0, 16e9)
    work = Workload("resnet", command=("python", "train.py"))
    return Profile("id", BEGAN, work, host, 0.1 * samples, 0.1, "cgroup-v2", "exited", 0, series)


def _rows(size: StoreSize) -> dict[str, Iterator[tuple[object, ...]]]:
    """Rows of the large tables, by the statement that inserts them."""

    def decisions() -> Iterator[tuple[object, ...]]:
        plain = to_plain(a_decision())
        for number in range(size.decisions):
            id, created = decision_id(number), BEGAN + _APART * number
            kind, about = decision_kind(number), subject(number)
            body = json.dumps({**plain, "id": id, "created": created, "kind": kind, "subject": about})
            yield id, created, kind, about, tenant(number), body

    def outcomes() -> Iterator[tuple[object, ...]]:
        for number in range(0, size.decisions, _OUTCOMES):
            id, recorded = decision_id(number), BEGAN + _APART * number + 7000.0
            outcome = Outcome(id, recorded, {"time": 7000.0, "cost": 1.85}, "ended")
            yield id, recorded, json.dumps(to_plain(outcome))

    def events() -> Iterator[tuple[object, ...]]:
        states = ("waiting", "starting", "running", "ended")
        for number in range(size.events):
            job, state = number // len(states) % size.jobs, states[number % len(states)]
            detail = json.dumps({"name": JOB["name"], "state": state, "why": ""})
            yield BEGAN + number, f"job.{state}", job_id(job), detail, tenant(job)

    return {
        "decisions (id, created, kind, subject, tenant, body) VALUES (?, ?, ?, ?, ?, ?)": decisions(),
        "outcomes (decision_id, recorded, body) VALUES (?, ?, ?)": outcomes(),
        "events (time, kind, subject, detail, tenant) VALUES (?, ?, ?, ?, ?)": events(),
    }


def _job(number: int, size: StoreSize) -> JobRecord:
    created = BEGAN + _APART * size.decisions / size.jobs * number
    (submission,) = submissions([{**JOB, "tenant": tenant(number)}], "the bench")
    record = submission.named(job_id(number), created).record()
    if number >= size.jobs - min(_WAITING, size.jobs // 10):
        return record
    state = _ENDS[number % len(_ENDS)]
    run = JobRun(attempt=1, group="t4", engine="local://", since=created + 60.0, ended=created + 7260.0)
    return replace(record, state=state, version=4, run=run, done=90_000.0)


def make_tokens(store: Store) -> dict[str, str]:
    names = [tenant(number) for number in range(TENANTS)]
    tokens = {name: store.tokens.make("bench", name, Role.USER)[1] for name in names}
    return tokens | {ALL_TENANTS: store.tokens.make("bench", ALL_TENANTS, Role.ADMIN)[1]}


_NAME = "run-"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is removed when the context ends, and those of dead processes."""
    place = home() / "bench" / "serve"
    for left in place.glob(f"{_NAME}*"):
        if not psutil.pid_exists(int(left.name.removeprefix(_NAME))):
            shutil.rmtree(left, ignore_errors=True)
    folder = place / f"{_NAME}{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
