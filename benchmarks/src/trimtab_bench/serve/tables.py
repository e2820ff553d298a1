"""What was measured, for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab_bench.result import Table

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
