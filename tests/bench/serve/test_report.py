"""The figures that were asked for by name, from what the sections measured."""

from typing import Any

from trimtab_bench.serve.report import failover_table, put_together, steps_table


def lasting(p99: float) -> dict[str, float]:
    return {"count": 100, "p50_ms": 1.0, "p99_ms": p99, "max_ms": 2 * p99}


def found(**other: Any) -> dict[str, Any]:
    step = {"reached": 1800.0, "p99_ms": 20.0, "errors": 0, "server_cpus": 1.0, "generator_cpus": 0.1}
    stream = {"open": 500, "complete": 500, "dropped": 0, "events": 9, "wanted": 9, "listener_cpus": 0.1}
    lag = {"lag_p50_ms": 100.0, "lag_p99_ms": 300.0, "lag_max_ms": 400.0}
    measured = {
        "load": {
            "reads": {"per_s": 1500.0, **lasting(20.0)},
            "writes": {"per_s": 300.0, **lasting(40.0)},
            "errors": 0,
            "server_cpus": 1.1,
            "generator_cpus": 0.2,
        },
        "operations": {"jobs.list first": lasting(21.0), "jobs.get": lasting(90.0)},
        "lists": {"jobs.list first, one tenant": lasting(5.0), "jobs.list last, all tenants": lasting(7.0)},
        "steps": {"1800": {"rate": 1800.0, **step}, "2160": {"rate": 2160.0, **step, "p99_ms": 70.0}},
        "steps_of_reads": {"1500": {"rate": 1500.0, **step, "reached": 1500.0}},
        "streams": {**stream, **lag},
        "streams_at_ceiling": {**stream, **lag},
        "failover": {
            "failover_s": 2.0,
            "trials_s": [2.0],
            "acknowledged": 9,
            "lost": 0,
            "survivor_errors": 0,
        },
        "queue": {"jobs": 10_000, "starts_per_s": 25.0, "round_s": 0.2, "longest_round_s": 0.4},
        "memory_mib": 100.0,
        "ready_s": 2.0,
    }
    return measured | other


def test_named_figures_are_the_worst_of_what_they_are_about() -> None:
    figures = put_together(found())
    named = (
        "reads_per_s",
        "writes_per_s",
        "p99_ms",
        "streams",
        "list_ms",
        "failover_s",
        "list_under_load_ms",
    )
    assert [figures[name] for name in named] == [1500.0, 300.0, 40.0, 500, 7.0, 2.0, 21.0]
    assert figures["ceiling_per_s"] == 1800.0
    assert all(goal["met"] for goal in figures["goals"].values())


def test_what_falls_short_is_said() -> None:
    short = found(failover={"failover_s": 6.0, "trials_s": [6.0], "acknowledged": 9, "lost": 1})
    short["load"]["errors"] = 1
    short["load"]["reads"]["p99_ms"] = 51.0
    short["streams"]["complete"] = 499
    short["ready_s"] = 3.5
    short["queue"] |= {"starts_per_s": 19.0, "round_s": 0.6}
    goals = put_together(short)["goals"]
    assert [name for name, goal in goals.items() if goal["met"]] == [
        "reads per second",
        "writes per second",
        "worst p99 of a list's page, ms",
    ]


def test_without_postgresql_failover_is_left_out_with_a_sentence() -> None:
    figures = put_together(found(failover={"left_out": "there is no PostgreSQL server here"}))
    assert figures["failover_s"] is None
    assert failover_table(figures["failover"]).rows == (("there is no PostgreSQL server here",),)


def test_tables_show_every_step_of_everybody() -> None:
    rival = {"steps": {"3000": found()["steps"]["1800"]}}
    rows = steps_table(put_together(found()), rival).rows
    assert [row[0] for row in rows] == [
        "reads and writes, streams open",
        "reads and writes, streams open",
        "reads alone",
        "FastAPI, a constant",
    ]
