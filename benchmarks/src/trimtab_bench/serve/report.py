"""The sections of the bench put together: figures by name, goals, and tables for people."""

from collections.abc import Iterator, Mapping
from operator import ge, lt
from pathlib import Path
from typing import Any

from trimtab.core import MissingDependencyError
from trimtab_bench.harness import BenchOptions, BenchResult, Goal, Table, goals_table, judged
from trimtab_bench.serve import store
from trimtab_bench.serve.failover import failover_figures
from trimtab_bench.serve.load import Load
from trimtab_bench.serve.processes import constant_server
from trimtab_bench.serve.serving import (
    Effort,
    Step,
    by_rate,
    ceiling,
    loaded,
    serving_figures,
    step_of,
    steps_to_ceiling,
)
from trimtab_bench.serve.store import scratch

FULL = Effort(store.FULL, 5.0, 30.0, 1.0, 5.0, steps=10, streams=500, pages=100)
QUICK = Effort(store.QUICK, 1.0, 4.0, 0.5, 1.5, steps=1, streams=50, pages=5)
_TRIALS = 3  # leaders that are killed
_RIVAL_FROM = 3000.0  # requests per second of its first step


def all_sections(options: BenchOptions) -> BenchResult:
    """What `trimtab bench serve` answers with."""
    from trimtab.serve import Settings, require_installed

    require_installed(Settings())
    effort = QUICK if options.quick else FULL
    with scratch() as folder, options.progress(3, "asking") as tell:
        found = serving_figures(folder / "serving", effort, options.seed)
        tell("serving")
        found["failover"] = _failover(folder / "failover", 1 if options.quick else _TRIALS, options.seed)
        tell("failover")
        rival = _rival(folder / "rival", effort, options.seed)
        tell("rival")
    figures = put_together(found)
    baselines = {"FastAPI with one constant route": rival}
    return BenchResult("serve", figures, baselines, {}, options.seed, _tables(figures, rival))


def put_together(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures; those that were asked for by name first."""
    load, streams, failover = found["load"], found["streams"], found["failover"]
    figures = {
        "reads_per_s": load["reads"]["per_s"],
        "writes_per_s": load["writes"]["per_s"],
        "p99_ms": max(load[each]["p99_ms"] for each in ("reads", "writes")),
        "streams": streams["complete"],
        "list_ms": max(each["p99_ms"] for each in found["lists"].values()),
        "failover_s": failover.get("failover_s"),
        "errors": load["errors"],
        "ceiling_per_s": ceiling([Step(**step) for step in found["steps"].values()]),
        "ceiling_of_reads_per_s": ceiling([Step(**step) for step in found["steps_of_reads"].values()]),
        "stream_lag_p99_ms": streams["lag_p99_ms"],
        "list_under_load_ms": max(
            each["p99_ms"] for name, each in found["operations"].items() if ".list " in name
        ),
        **{name: found[name] for name in ("load", "operations", "lists", "steps", "steps_of_reads")},
        "event_streams": streams,
        "event_streams_at_ceiling": found["streams_at_ceiling"],
        "failover": failover,
        "memory_mib": found["memory_mib"],
        "ready_s": found["ready_s"],
    }
    return figures | {"goals": goals(figures)}


def _failover(folder: Path, trials: int, seed: int) -> dict[str, Any]:
    try:
        return failover_figures(folder, trials, seed)
    except MissingDependencyError as error:
        return {"left_out": str(error)}


def _rival(folder: Path, effort: Effort, seed: int) -> dict[str, Any]:
    """How many requests per second the constant server stands, asked by the same generator."""
    with constant_server(folder) as server:

        def measure(rate: float) -> Step:
            load = Load(server.port, {"constant": rate}, effort.step_warm_up, effort.step_seconds, seed)
            return step_of(rate, loaded(server, load))

        steps = steps_to_ceiling(measure, _RIVAL_FROM, effort.steps)
    return {"ceiling_of_reads_per_s": ceiling(steps), "steps": by_rate(steps)}


def _tables(figures: Mapping[str, Any], rival: Mapping[str, Any]) -> tuple[Table, ...]:
    return (
        of_load(figures),
        of_operations(figures),
        of_lists(figures),
        of_steps(figures, rival),
        of_streams(figures),
        of_failover(figures),
        goals_table(figures["goals"]),
    )


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return judged(_goals(figures))


def _goals(figures: Mapping[str, Any]) -> Iterator[Goal]:
    yield Goal("reads per second", figures["reads_per_s"], ge, 1500.0)
    yield Goal("writes per second", figures["writes_per_s"], ge, 300.0)
    yield Goal("p99 of reads and of writes, the worse, ms", figures["p99_ms"], lt, 50.0)
    yield Goal("failed requests", float(figures["errors"]), lt, 1.0)
    yield Goal("event streams that got every event", float(figures["streams"]), ge, 500.0)
    yield Goal("worst p99 of a list's page, ms", figures["list_ms"], lt, 50.0)
    yield Goal("from the command until it answers, s", figures["ready_s"], lt, 3.0)
    if figures["failover_s"] is not None:
        yield Goal("from the leader's death to the next decision, s", figures["failover_s"], lt, 5.0)
        yield Goal("acknowledged writes that were lost", float(figures["failover"]["lost"]), lt, 1.0)


Figures = Mapping[str, Any]
_LATENCY = ("median ms", "p99 ms", "worst ms")


def of_load(figures: Figures) -> Table:
    """Reads and writes at once."""
    load = figures["load"]
    rows = tuple((name, f"{load[name]['per_s']:.0f}", *_latency(load[name])) for name in ("reads", "writes"))
    took = f"server {load['server_cpus']:.2f} CPUs, generator {load['generator_cpus']:.2f}"
    return Table(f"Asked at once ({took}, {load['errors']} failed)", ("what", "per s", *_LATENCY), rows)


def of_operations(figures: Figures) -> Table:
    """Every operation of that load."""
    rows = tuple((name, f"{each['count']}", *_latency(each)) for name, each in figures["operations"].items())
    return Table("Operations under that load", ("operation", "answers", *_LATENCY), rows)


def of_lists(figures: Figures) -> Table:
    """Pages of lists, one after the other."""
    rows = tuple((name, *_latency(each)) for name, each in figures["lists"].items())
    return Table("Pages of lists, one caller", ("list", *_LATENCY), rows)


def of_steps(figures: Figures, rival: Figures) -> Table:
    """On the way to what is too much."""
    columns = ("what", "asked per s", "answered per s", "p99 ms", "failed", "server CPUs", "generator CPUs")
    rows = (
        *_steps("reads and writes, streams open", figures["steps"]),
        *_steps("reads alone", figures["steps_of_reads"]),
        *_steps("FastAPI, a constant", rival["steps"]),
    )
    return Table("The most that is stood", columns, rows)


def of_streams(figures: Figures) -> Table:
    """Event streams beside the load, and beside the steps."""
    columns = ("beside", "open", "got every event", "events", "lag median ms", "lag p99 ms", "listener CPUs")
    beside = {"the load": figures["event_streams"], "the steps": figures["event_streams_at_ceiling"]}
    rows = tuple(
        (
            name,
            f"{each['open']}",
            f"{each['complete']}",
            f"{each['events']} of {each['wanted']}",
            f"{each['lag_p50_ms']:.0f}",
            f"{each['lag_p99_ms']:.0f}",
            f"{each['listener_cpus']:.2f}",
        )
        for name, each in beside.items()
    )
    return Table("Event streams", columns, rows)


def of_failover(figures: Figures) -> Table:
    """The leader's death."""
    told = figures["failover"]
    if "left_out" in told:
        return Table("Failover", ("left out",), ((told["left_out"],),))
    times = ", ".join(f"{seconds:.2f}" for seconds in told["trials_s"])
    row = (times, f"{told['acknowledged']}", f"{told['lost']}", f"{told['survivor_errors']}")
    columns = ("s until the other decided", "acknowledged writes", "lost", "failures at the survivor")
    return Table("The leader is killed", columns, (row,))


def _latency(told: Figures) -> tuple[str, ...]:
    return tuple(f"{told[name]:.1f}" for name in ("p50_ms", "p99_ms", "max_ms"))


def _steps(what: str, steps: Mapping[str, Figures]) -> Iterator[tuple[str, ...]]:
    for step in steps.values():
        rates = (
            f"{step['rate']:.0f}",
            f"{step['reached']:.0f}",
            f"{step['p99_ms']:.1f}",
            f"{step['errors']}",
        )
        yield (what, *rates, f"{step['server_cpus']:.2f}", f"{step['generator_cpus']:.2f}")
