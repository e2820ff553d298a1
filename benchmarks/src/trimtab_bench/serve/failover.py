"""Two servers on one PostgreSQL, both under a load of writes; the leader is killed, and the other decides."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trimtab.core import NotFoundError, TrimtabError
from trimtab.store import JobState, Store, open_store
from trimtab_bench.postgres import postgres
from trimtab_bench.processes import child
from trimtab_bench.serve.load import Load, mixed
from trimtab_bench.serve.processes import ServerProcess, up
from trimtab_bench.serve.requests import WRITES
from trimtab_bench.serve.serving import ENGINE
from trimtab_bench.serve.store import (
    ALL_TENANTS,
    BEGAN,
    StoreSize,
    a_decision,
    decision_id,
    furnish,
    make_tokens,
    tenant,
)

SIZE = StoreSize(jobs=200, decisions=400, events=0, profiles=20)
_RATE = 40.0  # writes per second on each of the two
_BEFORE = 2.0  # s of load before the kill
_AFTER = 5.0  # s of load on the other
_PATIENCE = 30.0  # s in which the other must have decided
_POLLED_EVERY = 0.02
_SUBMITTED_EVERY = 0.25

_PROBE = {"name": "probe", "kind": "batch", "command": "true", "resources": {"cpus": 0.1}}
"""A job that can start at once."""


def failover_figures(folder: Path, trials: int, seed: int) -> dict[str, Any]:
    """Seconds from the kill to a decision of the other server, at worst and in each trial; lost writes."""
    with postgres() as url, ExitStack() as stack:
        store = stack.enter_context(open_store(url))
        furnish(store, SIZE)
        with store.together():
            for number in range(SIZE.decisions):
                decision = replace(a_decision(), id=decision_id(number), created=BEGAN + number)
                store.ledger.record(decision, tenant(number))
        tokens = make_tokens(store)

        def another(number: int) -> ServerProcess:
            options = (*ENGINE, "--no-dashboard", "--rate-limit", "100000")
            return stack.enter_context(up(folder / f"controller-{number}", url, *options))

        leader = another(0)
        seconds, acknowledged, broken = list[float](), list[tuple[str, str]](), 0
        for trial in range(trials):
            other = another(trial + 1)
            waited, results = _killed_under_load(leader, other, tokens, seed + trial, f"trial-{trial}")
            seconds.append(waited)
            acknowledged += [(name, id) for result in results for name, id in result["acknowledged"]]
            broken += sum(results[1]["errors"].values())
            leader = other
        lost = missing(store, acknowledged)
    return {
        "failover_s": max(seconds),
        "trials_s": seconds,
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "survivor_errors": broken,
    }


def missing(store: Store, acknowledged: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Acknowledged writes that the store does not have."""
    return [(name, id) for name, id in acknowledged if not _is_there(store, name, id)]


def _is_there(store: Store, name: str, id: str) -> bool:
    try:
        if name == "outcomes.record":
            decision, _, note = id.partition(" ")
            return any(outcome.note == note for outcome in store.ledger.outcomes(decision))
        if name == "jobs.cancel":
            return store.jobs.get(id).state is JobState.CANCELLED
        find: dict[str, Callable[[str], object]] = {
            "jobs.submit": store.jobs.get,
            "profiles.keep": store.profiles.get,
            "decisions.record": store.ledger.get,
        }
        find[name](id)
        return True
    except NotFoundError:
        return False


def _killed_under_load(
    leader: ServerProcess, other: ServerProcess, tokens: dict[str, str], seed: int, run: str
) -> tuple[float, Sequence[dict[str, Any]]]:
    """Seconds until the other server decided; results of both generators, the survivor's second."""
    rates, size = mixed(WRITES, _RATE), asdict(SIZE)
    plans = ((leader, _BEFORE + 1.0, "a"), (other, _BEFORE + _AFTER, "b"))
    with ExitStack() as stack:
        generators = [stack.enter_context(child("-m", "trimtab_bench.serve.load")) for _ in plans]
        for number, (server, seconds, name) in enumerate(plans):
            run_name = f"{run}-{name}"
            load = Load(
                server.port, rates, 0.0, seconds, seed + number, run_name, tokens, size, acknowledged=True
            )
            generators[number].send(asdict(load))
        for generator in generators:
            generator.receive()
        time.sleep(_BEFORE)
        killed, began = time.time(), time.monotonic()
        leader.kill()
        _until_decided(other, tokens[ALL_TENANTS], killed)
        waited = time.monotonic() - began
        for generator in generators:
            generator.receive()
        return waited, [generator.receive() for generator in generators]


def _until_decided(server: ServerProcess, token: str, killed: float) -> None:
    """Submit jobs until the ledger has a decision about one that was made after the kill."""
    deadline, submit_at = time.monotonic() + _PATIENCE, 0.0
    with server.connection(token) as ask:
        while time.monotonic() < deadline:
            if time.monotonic() >= submit_at:
                submit_at = time.monotonic() + _SUBMITTED_EVERY
                ask("POST", "/v1/jobs", {"jobs": [_PROBE], "tenant": "probe"})
            if ask("GET", f"/v1/decisions?kind=schedule&since={killed}&limit=1")["items"]:
                return
            time.sleep(_POLLED_EVERY)
    raise TrimtabError(f"{_PATIENCE:g} s after the leader was killed, the other had not decided anything")
