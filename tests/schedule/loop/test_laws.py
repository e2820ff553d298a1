"""Whatever happens in whatever order: nodes are never overfull, and no job has two runs or is forgotten."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from job_texts import parse_jobs

from trimtab.core import Node, RealClock
from trimtab.schedule import POLICIES, LoopSettings, Scheduler, cancel_job, policy, submit_jobs
from trimtab.schedule.loop.journal import RestartRules
from trimtab.store import Store, open_store

NODES = [Node("a1", 8.0, 16.0, "A100", 4), Node("a2", 8.0, 16.0, "A100", 4), Node("c1", 4.0, 16.0)]
JOBS = [
    "resources: {gpus: 1}",
    "resources: {gpus: 0.5}",
    "resources: {gpus: 6}\npriority: high",
    "resources: {gpus: 1..8}\ncheckpoint: {seconds: 0.001}",
    "resources: {gpus: 4, cpus: 2, memory: 4}\npriority: urgent",
    "resources: {cpus: 3, memory: 8}",
]
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(JOBS)),
        st.tuples(st.sampled_from(["ended", "failed", "lost", "cancel"]), st.integers(0, 20)),
        st.tuples(st.sampled_from(["crash", "round", "node goes", "node comes"]), st.just(0)),
    ),
    max_size=25,
)


def _within_bounds(engine: Any) -> None:
    used: Counter[tuple[str, str]] = Counter()
    for launch in engine.launches:
        if launch.key in engine.running().values():
            for node, workers in launch.parts:
                used[node, "gpus"] += workers * launch.gpus
                used[node, "cpus"] += workers * launch.cpus
                used[node, "memory"] += workers * launch.memory
    for node in NODES:
        for what, most in (("gpus", node.gpus), ("cpus", node.cpus), ("memory", node.memory)):
            assert used[node.name, what] <= most + 1e-6


def _happen(what: str, which: Any, store: Store, engine: Any) -> None:
    if what == "submit":
        submit_jobs(store, parse_jobs(f"name: a\ncommand: 'true'\n{which}", "job.yaml"), (), RealClock())
    elif what == "node goes":
        engine.machines = engine.machines[:-1] or engine.machines
    elif what == "node comes":
        engine.machines = list(NODES)
    elif what == "cancel":
        jobs = store.jobs.active()
        if jobs:
            cancel_job(store, jobs[which % len(jobs)].id, RealClock())
    elif what in ("ended", "failed", "lost"):
        running = sorted(engine.running())
        if running:
            engine.end(running[which % len(running)], what, "status")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([name for name in POLICIES if name != "sia"]), happenings=happenings)
def test_nodes_are_never_overfull_and_every_job_has_one_run_at_most(
    memory_engine: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    happenings: list[tuple[str, Any]],
) -> None:
    folder: Path = tmp_path_factory.mktemp("law")
    monkeypatch.setenv("TRIMTAB_HOME", str(folder))
    engine = memory_engine(*NODES)

    def begin(store: Store) -> Scheduler:
        return Scheduler(
            store,
            engine,
            policy(name),
            name,
            LoopSettings(patience=0.01, restarts=RestartRules(first=0.0, losses=1000)),
        )

    with open_store(f"sqlite:///{folder}/store.sqlite") as store:
        loop = begin(store)
        for what, which in happenings:
            _happen(what, which, store, engine)
            if what == "crash":
                loop = begin(store)
            loop.step()
            _within_bounds(engine)
            jobs = Counter(key.rpartition("-")[0] for key in engine.running().values())
            assert not jobs or max(jobs.values()) == 1
        engine.machines = list(NODES)
        for _ in range(200):
            loop.step()
            for run_id in engine.running():
                engine.end(run_id)
            if not store.jobs.active():
                break
        assert store.jobs.active() == ()
        assert engine.running() == {}
