"""Two servers on one PostgreSQL, both asked to write; the one that leads is killed, and the other decides."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trimtab.core import NotFoundError, TrimtabError
from trimtab.store import JobState, Store, open_store
from trimtab_bench.serve.load import Load, mixed
from trimtab_bench.serve.processes import Child, Server, child, postgres, up
from trimtab_bench.serve.requests import WRITES
from trimtab_bench.serve.serving import ENGINE
from trimtab_bench.serve.store import (
    BEGAN,
    EVERYBODY,
    World,
    a_decision,
    decision_id,
    furnish,
    make_tokens,
    tenant,
)

SIZE = World(jobs=200, decisions=400, events=0, profiles=20)
_RATE = 40.0  # writes per second on each of the two
_BEFORE = 2.0  # s of load before the kill
_AFTER = 5.0  # s of load on the other
_PATIENCE = 30.0  # s in which the other must have decided
_ASKED_EVERY = 0.02
_SUBMITTED_EVERY = 0.25

# Nobody can do this in time, so the scheduler refuses it: a decision that starts nothing.
_HOPELESS = {
    "name": "hopeless",
    "command": "true",
    "resources": {"gpus": 1, "cpus": 1},
    "work": 1e9,
    "speeds": {"t4": 1.0},
    "deadline": {"by": "60s", "hard": True},
}


def failover_figures(folder: Path, trials: int, seed: int) -> dict[str, Any]:
    """Seconds from the kill to a decision of the other, at worst and each time; what was lost, by kind."""
    with postgres() as url, ExitStack() as stack:
        store = stack.enter_context(open_store(url))
        furnish(store, SIZE)
        _decisions(store)
        tokens = make_tokens(store)

        def another(number: int) -> Server:
            home = folder / f"controller-{number}"
            told = ("--engine", ENGINE, "--no-dashboard", "--rate-limit", "100000")
            return stack.enter_context(up(home, url, *told))

        leader = another(0)
        seconds, acknowledged, broken = list[float](), list[tuple[str, str]](), 0
        for trial in range(trials):
            other = another(trial + 1)
            took, seen = _killed_under_load(leader, other, tokens, seed + trial, f"trial-{trial}")
            seconds.append(took)
            for each in seen:
                acknowledged += [(name, id) for name, id in each["acknowledged"]]
            broken += sum(seen[1]["errors"].values())
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
    """What a server said it had written and the store does not have."""
    return [(name, id) for name, id in acknowledged if not _is_there(store, name, id)]


def _is_there(store: Store, name: str, id: str) -> bool:
    try:
        if name == "outcomes.record":
            decision, _, note = id.partition(" ")
            return any(each.note == note for each in store.ledger.outcomes(decision))
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


def _decisions(store: Store) -> None:
    with store.together():
        for number in range(SIZE.decisions):
            made = replace(a_decision(), id=decision_id(number), created=BEGAN + number)
            store.ledger.record(made, tenant(number))


def _killed_under_load(
    leader: Server, other: Server, tokens: dict[str, str], seed: int, run: str
) -> tuple[float, Sequence[dict[str, Any]]]:
    """Seconds until the other decided; what both generators saw, the survivor's second."""
    with child("load") as at_leader, child("load") as at_other:
        _begin(at_leader, leader, tokens, _BEFORE + 1.0, seed, f"{run}-a")
        _begin(at_other, other, tokens, _BEFORE + _AFTER, seed + 1, f"{run}-b")
        for each in (at_leader, at_other):
            each.heard()
        time.sleep(_BEFORE)
        killed, began = time.time(), time.monotonic()
        leader.kill()
        _until_decided(other, tokens[EVERYBODY], killed)
        took = time.monotonic() - began
        for each in (at_leader, at_other):
            each.heard()
        return took, (at_leader.heard(), at_other.heard())


def _begin(
    generator: Child, server: Server, tokens: dict[str, str], seconds: float, seed: int, run: str
) -> None:
    rates = mixed(WRITES, _RATE)
    load = Load(server.port, rates, 0.0, seconds, seed, run, tokens, asdict(SIZE), acknowledged=True)
    generator.tell(asdict(load))


def _until_decided(server: Server, token: str, killed: float) -> None:
    """Submit jobs until the ledger has a decision about one that was made after the kill."""
    deadline, submit_at = time.monotonic() + _PATIENCE, 0.0
    with server.connection(token) as ask:
        while time.monotonic() < deadline:
            if time.monotonic() >= submit_at:
                submit_at = time.monotonic() + _SUBMITTED_EVERY
                ask("POST", "/v1/jobs", {"jobs": [_HOPELESS], "tenant": "probe"})
            if ask("GET", f"/v1/decisions?kind=schedule&since={killed}&limit=1")["items"]:
                return
            time.sleep(_ASKED_EVERY)
    raise TrimtabError(f"{_PATIENCE:g} s after the leader was killed, the other had not decided anything")
