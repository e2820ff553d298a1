"""The sections of the bench, put together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.core import MissingDependencyError
from trimtab_bench.goals import goals_table
from trimtab_bench.options import BenchOptions
from trimtab_bench.result import BenchResult, Table
from trimtab_bench.serve import ceiling, tables, world
from trimtab_bench.serve.ceiling import Step
from trimtab_bench.serve.failover import failover_figures
from trimtab_bench.serve.generator import Load
from trimtab_bench.serve.goals import goals
from trimtab_bench.serve.loading import loaded
from trimtab_bench.serve.processes import constant_server
from trimtab_bench.serve.scratch import scratch
from trimtab_bench.serve.serving import Effort, by_rate, serving_figures, step_of

FULL = Effort(world.FULL, 5.0, 30.0, 1.0, 5.0, steps=10, streams=500, pages=100)
QUICK = Effort(world.QUICK, 1.0, 4.0, 0.5, 1.5, steps=1, streams=50, pages=5)
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
        "ceiling_per_s": ceiling.ceiling([Step(**step) for step in found["steps"].values()]),
        "ceiling_of_reads_per_s": ceiling.ceiling(
            [Step(**step) for step in found["steps_of_reads"].values()]
        ),
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

        steps = ceiling.steps_to_ceiling(measure, _RIVAL_FROM, effort.steps)
    return {"ceiling_of_reads_per_s": ceiling.ceiling(steps), "steps": by_rate(steps)}


def _tables(figures: Mapping[str, Any], rival: Mapping[str, Any]) -> tuple[Table, ...]:
    return (
        tables.of_load(figures),
        tables.of_operations(figures),
        tables.of_lists(figures),
        tables.of_steps(figures, rival),
        tables.of_streams(figures),
        tables.of_failover(figures),
        goals_table(figures["goals"]),
    )
