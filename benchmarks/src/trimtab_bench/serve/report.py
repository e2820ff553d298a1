"""The sections of the bench put together: figures by name, goals, and tables."""

from collections.abc import Iterator, Mapping
from operator import ge, le, lt
from pathlib import Path
from typing import Any

from trimtab.core import MissingDependencyError
from trimtab_bench.harness import BenchGoal, BenchOptions, BenchResult, ResultTable, goals_table, judged
from trimtab_bench.serve import store
from trimtab_bench.serve.failover import failover_figures
from trimtab_bench.serve.load import Load
from trimtab_bench.serve.processes import constant_server
from trimtab_bench.serve.queue import queue_figures
from trimtab_bench.serve.serving import (
    RateStep,
    ServeEffort,
    by_rate,
    ceiling,
    loaded,
    serving_figures,
    steps_to_ceiling,
)
from trimtab_bench.serve.store import scratch

FULL = ServeEffort(store.FULL, 5.0, 30.0, 1.0, 5.0, steps=10, streams=500, pages=100)
QUICK = ServeEffort(store.QUICK, 1.0, 4.0, 0.5, 1.5, steps=1, streams=50, pages=5)
_TRIALS = 3  # leaders that are killed
_QUEUE, _QUICK_QUEUE = (10_000, 20.0), (300, 3.0)  # jobs, and s that are measured
_RIVAL_FROM = 3000.0  # requests per second of its first step


def all_sections(options: BenchOptions) -> BenchResult:
    from trimtab.serve import Settings, require_installed

    require_installed(Settings())
    effort = QUICK if options.quick else FULL
    with scratch() as folder, options.progress(4, "asking") as announce:
        measured = serving_figures(folder / "serving", effort, options.seed)
        announce("serving")
        trials = 1 if options.quick else _TRIALS
        try:
            measured["failover"] = failover_figures(folder / "failover", trials, options.seed)
        except MissingDependencyError as error:
            measured["failover"] = {"left_out": str(error)}
        announce("failover")
        measured["queue"] = queue_figures(folder / "queue", *(_QUICK_QUEUE if options.quick else _QUEUE))
        announce("queue")
        rival = _rival(folder / "rival", effort, options.seed)
        announce("rival")
    figures = put_together(measured)
    baselines = {"FastAPI with one constant route": rival}
    return BenchResult("serve", figures, baselines, {}, options.seed, tables(figures, rival))


def put_together(measured: Mapping[str, Any]) -> dict[str, Any]:
    """The figures; the named ones first, and whether the goals are met."""
    load, streams, failover = measured["load"], measured["streams"], measured["failover"]
    figures = {
        "reads_per_s": load["reads"]["per_s"],
        "writes_per_s": load["writes"]["per_s"],
        "p99_ms": max(load[kind]["p99_ms"] for kind in ("reads", "writes")),
        "streams": streams["complete"],
        "list_ms": max(entry["p99_ms"] for entry in measured["lists"].values()),
        "failover_s": failover.get("failover_s"),
        "starts_per_s": measured["queue"]["starts_per_s"],
        "round_s_10k": measured["queue"]["round_s"],
        "errors": load["errors"],
        "ceiling_per_s": ceiling([RateStep(**step) for step in measured["steps"].values()]),
        "ceiling_of_reads_per_s": ceiling([RateStep(**step) for step in measured["steps_of_reads"].values()]),
        "stream_lag_p99_ms": streams["lag_p99_ms"],
        "list_under_load_ms": max(
            entry["p99_ms"] for name, entry in measured["operations"].items() if ".list " in name
        ),
        **{name: measured[name] for name in ("load", "operations", "lists", "steps", "steps_of_reads")},
        "event_streams": streams,
        "event_streams_at_ceiling": measured["streams_at_ceiling"],
        "failover": failover,
        "queue": measured["queue"],
        "memory_mib": measured["memory_mib"],
        "ready_s": measured["ready_s"],
    }
    return figures | {"goals": judged(_goals(figures))}


def _rival(folder: Path, effort: ServeEffort, seed: int) -> dict[str, Any]:
    """Requests per second that the constant server stands, from the same generator."""
    with constant_server(folder) as server:

        def measure(rate: float) -> RateStep:
            load = Load(server.port, {"constant": rate}, effort.step_warm_up, effort.step_seconds, seed)
            return loaded(server, load).step(rate)

        steps = steps_to_ceiling(measure, _RIVAL_FROM, effort.steps)
    return {"ceiling_of_reads_per_s": ceiling(steps), "steps": by_rate(steps)}


def _goals(figures: Mapping[str, Any]) -> Iterator[BenchGoal]:
    yield BenchGoal("reads per second", figures["reads_per_s"], ge, 1500.0)
    yield BenchGoal("writes per second", figures["writes_per_s"], ge, 300.0)
    yield BenchGoal("p99 of reads and of writes, the worse, ms", figures["p99_ms"], lt, 50.0)
    yield BenchGoal("failed requests", float(figures["errors"]), lt, 1.0)
    yield BenchGoal("event streams that got every event", float(figures["streams"]), ge, 500.0)
    yield BenchGoal("worst p99 of a list's page, ms", figures["list_ms"], lt, 50.0)
    yield BenchGoal("from the command until it answers, s", figures["ready_s"], lt, 3.0)
    yield BenchGoal("starts per second of 10,000 queued jobs", figures["starts_per_s"], ge, 20.0)
    if figures["round_s_10k"] is not None:
        yield BenchGoal("a round with 10,000 queued jobs, s", figures["round_s_10k"], le, 0.5)
    if figures["failover_s"] is not None:
        yield BenchGoal("from the leader's death to the next decision, s", figures["failover_s"], lt, 5.0)
        yield BenchGoal("acknowledged writes that were lost", float(figures["failover"]["lost"]), lt, 1.0)


Figures = Mapping[str, Any]
_LATENCY = {"median ms": "{p50_ms:.1f}", "p99 ms": "{p99_ms:.1f}", "worst ms": "{max_ms:.1f}"}


def tables(figures: Figures, rival: Figures) -> tuple[ResultTable, ...]:
    load = figures["load"]
    cpus = f"server {load['server_cpus']:.2f} CPUs, generator {load['generator_cpus']:.2f}"
    at_once = f"Asked at once ({cpus}, {load['errors']} failed)"
    kinds = {name: load[name] for name in ("reads", "writes")}
    during = {"the load": figures["event_streams"], "the steps": figures["event_streams_at_ceiling"]}
    streams = {
        "open": "{open}",
        "got every event": "{complete}",
        "events": "{events} of {wanted}",
        "lag median ms": "{lag_p50_ms:.0f}",
        "lag p99 ms": "{lag_p99_ms:.0f}",
        "listener CPUs": "{listener_cpus:.2f}",
    }
    operations = {"answers": "{count}", **_LATENCY}
    return (
        ResultTable.of(at_once, "what", kinds, {"per s": "{per_s:.0f}", **_LATENCY}),
        ResultTable.of("Operations under that load", "operation", figures["operations"], operations),
        ResultTable.of("Pages of lists, one caller", "list", figures["lists"], _LATENCY),
        steps_table(figures, rival),
        ResultTable.of("Event streams", "beside", during, streams),
        failover_table(figures["failover"]),
        queue_table(figures["queue"]),
        goals_table(figures["goals"]),
    )


def steps_table(figures: Figures, rival: Figures) -> ResultTable:
    columns = ("what", "asked per s", "answered per s", "p99 ms", "failed", "server CPUs", "generator CPUs")
    forms = ["{rate:.0f}", "{reached:.0f}", "{p99_ms:.1f}", "{errors}"]
    forms += ("{server_cpus:.2f}", "{generator_cpus:.2f}")
    groups = {
        "reads and writes, streams open": figures["steps"],
        "reads alone": figures["steps_of_reads"],
        "FastAPI, a constant": rival["steps"],
    }
    rows = [
        (name, *(form.format_map(step) for form in forms))
        for name, steps in groups.items()
        for step in steps.values()
    ]
    return ResultTable("The most that is stood", columns, rows)


def failover_table(failover: Figures) -> ResultTable:
    """Times to a decision after the leader's death, or why they were not measured."""
    if "left_out" in failover:
        return ResultTable("Failover", ("left out",), ((failover["left_out"],),))
    times = ", ".join(f"{seconds:.2f}" for seconds in failover["trials_s"])
    row = (times, f"{failover['acknowledged']}", f"{failover['lost']}", f"{failover['survivor_errors']}")
    columns = ("s until the other decided", "acknowledged writes", "lost", "failures at the survivor")
    return ResultTable("The leader is killed", columns, (row,))


def queue_table(queue: Figures) -> ResultTable:
    """Starts and rounds with a long queue."""
    rounds = [queue[name] for name in ("round_s", "longest_round_s")]
    row = (f"{queue['jobs']}", f"{queue['starts_per_s']:.1f}", *(f"{s:.2f}" if s else "?" for s in rounds))
    return ResultTable("A long queue", ("jobs", "starts per s", "a round, s", "the longest, s"), (row,))
