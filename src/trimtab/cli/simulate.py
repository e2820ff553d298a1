"""`trimtab simulate`: what policies would do with a trace."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from trimtab import schedule as room
from trimtab.cli.options import OUTPUT, panel
from trimtab.cli.terminal import check_files, new_table, print_table, progress, warn, write_file
from trimtab.core import HOUR, format_money, to_plain
from trimtab.schedule import (
    FaultSettings,
    Replay,
    Scene,
    SchedulingPolicy,
    SimulationSettings,
    WithQuotas,
    find_trace,
    parse_faults,
    policy,
    read_cluster,
    read_quotas,
    refuse_beyond_quotas,
    scene_of,
    simulate as replay,
    summary,
    tenant_summaries,
)

_INTERRUPTED = 130
_cluster, _output = panel("What it runs on, and what goes wrong"), panel(OUTPUT)


def simulate(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="A trace's file, or a folder of data sets.", show_default=False),
    ],
    part: Annotated[str | None, typer.Option(help="Which trace, where there are several: saturn-1.")] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Who runs next: fifo, trimtab, las:KEY=VALUE…; several are compared."),
    ] = None,
    cluster: Annotated[Path | None, _cluster(help="A YAML file of groups of nodes.")] = None,
    data: Annotated[
        Path | None, _cluster(help="The folder of measured speeds, if not where the trace is.")
    ] = None,
    round_seconds: Annotated[
        float | None,
        _cluster(
            "--round", min=1.0, help="Seconds between decisions; 60 for jobs that adapt, 360 for others."
        ),
    ] = None,
    rigid: Annotated[bool, _cluster("--rigid", help="Jobs keep the size they asked for.")] = False,
    quotas: Annotated[Path | None, _cluster(help="A YAML file of tenants with guarantees.")] = None,
    faults: Annotated[
        str | None,
        _cluster(
            metavar="NAME=VALUE,...",
            help="node-loss=1/30d, repair=1h, spot=0.1/h, refill=30m, slow=2%, slowness=2, job-failure=1/d.",
        ),
    ] = None,
    seed: Annotated[int, _cluster(help="Where chance starts.")] = 0,
    tenants: Annotated[bool, _output("--tenants", help="Figures of each tenant as well.")] = False,
    report: Annotated[Path | None, _output(metavar="FILE", help="Write a page with charts.")] = None,
    as_json: Annotated[bool, _output("--json", help="Print JSON: hours, shares, dollars.")] = False,
) -> None:
    """Replay a trace under one policy or several, and compare them. The same policies run the fleet.

    `trimtab simulate ../data --part saturn-1 --policy trimtab --policy sia --report out.html`

    Speeds come from measurements, or from the trace itself; without `--cluster`, the cluster is the one the
    trace was made for. The same seed gives the same answer. Ctrl-C shows what has been simulated so far.
    """
    check_files(report)
    chosen = {name: policy(name) for name in policies or ["trimtab"]}
    scene, told = _scene(trace, part, cluster, data, rigid, faults)
    if quotas is not None:
        chosen = _within_quotas(chosen, quotas, scene)
    for note in scene.notes:
        warn(f"{scene.name}: {note}")
    replays = _run(scene, chosen, round_seconds or scene.round, told, seed)
    if as_json:
        print(json.dumps(_as_json(scene, replays, round_seconds or scene.round, seed)))
    elif replays:
        _print_figures(replays)
        if tenants:
            _print_tenants(replays)
    for line in write_file(report if replays else None, lambda: room.html_report(scene, replays)):
        typer.echo(line, err=True)
    if len(replays) < len(chosen):
        raise typer.Exit(_INTERRUPTED)


def _within_quotas(
    policies: Mapping[str, SchedulingPolicy], path: Path, scene: Scene
) -> dict[str, SchedulingPolicy]:
    quotas = read_quotas(path)
    refuse_beyond_quotas(scene, quotas)
    return {name: WithQuotas(policy, quotas) for name, policy in policies.items()}


def _scene(
    path: Path, part: str | None, cluster: Path | None, data: Path | None, rigid: bool, faults: str | None
) -> tuple[Scene, FaultSettings]:
    told = FaultSettings() if faults is None else parse_faults(faults)
    trace, file = find_trace(path, part)
    groups = read_cluster(cluster) if cluster is not None else trace.groups
    return scene_of(trace, file, told.groups(groups), data, rigid), told


def _run(
    scene: Scene,
    policies: Mapping[str, SchedulingPolicy],
    round_seconds: float,
    told: FaultSettings,
    seed: int,
) -> dict[str, Replay]:
    """The policies one after the other; those that were finished when Ctrl-C came."""
    settings = SimulationSettings(round=round_seconds)
    done: dict[str, Replay] = {}
    ended = 0
    try:
        for name, policy in policies.items():
            ended = 0
            with progress(name, len(scene.jobs), counted=True, remaining=True) as update:

                def tell(count: int, update: Callable[..., None] = update) -> None:
                    nonlocal ended
                    ended = count
                    update(completed=count)

                faults = told.source(scene.cluster.groups, seed)
                done[name] = replay(scene.jobs, scene.cluster, scene.world(), policy, settings, faults, tell)
    except KeyboardInterrupt:
        left = [name for name in policies if name not in done]
        rest = f"; not begun: {', '.join(left[1:])}" if left[1:] else ""
        warn(f"interrupted while {left[0]} had ended {ended:,} of {len(scene.jobs):,} jobs{rest}")
    return done


def _print_figures(replays: Mapping[str, Replay]) -> None:
    table = new_table("policy")
    heads = ("mean h", "p99 h", "makespan", "deadlines", "Jain", "restarts", "used", "cost")
    figures = {name: summary(replay) for name, replay in replays.items()}
    refused = any(each["refused"] for each in figures.values())
    for head in (*heads, "refused") if refused else heads:
        table.add_column(head, justify="right")
    for name, each in figures.items():
        table.add_row(
            name,
            *(_hours(each[key]) for key in ("avg_jct_h", "p99_jct_h", "makespan_h")),
            f"{each['deadlines_met']:.1%}" if each["deadlines"] else "none",
            f"{each['jain']:.3f}",
            f"{each['restarts']:.2f}",
            f"{each['utilization']:.1%}",
            format_money(each["cost"]),
            *([f"{each['refused']:.0f}"] if refused else []),
        )
    print_table(table)


def _print_tenants(replays: Mapping[str, Replay]) -> None:
    table = new_table("policy", "tenant", ">jobs", ">mean h", ">served", ">GPU-h", ">cost")
    for name, ended in replays.items():
        for each in tenant_summaries(ended):
            table.add_row(
                name,
                escape(each.name),
                f"{each.jobs:,}",
                _hours(each.completion / HOUR),
                f"{each.served:.1%}",
                f"{each.attained / HOUR:,.1f}",
                format_money(each.spent),
            )
    print_table(table)


def _hours(hours: float) -> str:
    return "" if math.isnan(hours) else f"{hours:.3f}"


def _as_json(scene: Scene, replays: Mapping[str, Replay], round_seconds: float, seed: int) -> Any:
    return {
        "trace": scene.name,
        "jobs": len(scene.jobs),
        "accelerators": float(scene.cluster.capacity[:, 0].sum()),
        "round": round_seconds,
        "seed": seed,
        "policies": {
            name: {
                **{key: _number(value) for key, value in summary(replay).items()},
                "tenants": [
                    {key: _number(value) for key, value in to_plain(each).items()}
                    for each in tenant_summaries(replay)
                ],
            }
            for name, replay in replays.items()
        },
    }


def _number(value: Any) -> Any:
    """JSON has no word for what is not a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
