"""`trimtab simulate`: replay a trace under scheduling policies."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from trimtab import schedule as room
from trimtab.cli.terminal import OUTPUT, check_files, panel, print_rows, progress, warn, write_file
from trimtab.core import HOUR, format_money, to_plain

_INTERRUPTED = 130
_cluster, _output = panel("Cluster and faults"), panel(OUTPUT)


def simulate(
    trace: Path = typer.Argument(..., metavar="TRACE", help="A trace's file, or a folder of data sets."),
    part: str | None = typer.Option(
        None, metavar="NAME", help="Name of the trace, if TRACE holds several: saturn-1."
    ),
    policies: list[str] | None = typer.Option(
        None,
        "--policy",
        metavar="POLICY",
        help=f"{', '.join(room.POLICIES)}; settings follow a colon, as in las:KEY=VALUE (repeat to compare).",
    ),
    cluster: Path | None = _cluster(
        None, help="A YAML file of node groups; default: the cluster of the trace."
    ),
    data: Path | None = _cluster(
        None, help="The folder with measured speeds of jobs; default: the trace's folder."
    ),
    round_seconds: float | None = _cluster(
        None, "--round", min=1.0, help="Seconds between rounds; default: 60 for elastic jobs, 360 for others."
    ),
    rigid: bool = _cluster(False, "--rigid", help="Jobs keep the size that they requested."),
    quotas: Path | None = _cluster(None, help="A YAML file of tenants with guarantees."),
    faults: str | None = _cluster(
        None,
        metavar="NAME=VALUE,...",
        help="node-loss=1/30d, repair=1h, spot=0.1/h, refill=30m, slow=2%, slowness=2, job-failure=1/d.",
    ),
    seed: int = _cluster(0, help="Seed of the random faults."),
    tenants: bool = _output(False, "--tenants", help="Print figures for each tenant too."),
    report: Path | None = _output(None, metavar="FILE", help="Write a page with charts."),
    as_json: bool = _output(False, "--json", help="Print JSON: hours, shares, dollars."),
) -> None:
    """Replay a trace under one policy or several, and compare them: the policies that `trimtab up` runs.

    `trimtab simulate ../data --part saturn-1 --policy trimtab --policy sia --report out.html`

    Speeds come from measurements, or from the trace itself; without `--cluster`, the cluster is the trace's
    own. Equal seeds give equal results. Ctrl-C prints the policies that are finished.
    """
    check_files(report)
    chosen = {name: room.policy(name) for name in policies or ["trimtab"]}
    fault_settings = room.FaultSettings() if faults is None else room.parse_faults(faults)
    source, file = room.find_trace(trace, part)
    groups = room.read_cluster(cluster) if cluster is not None else source.groups
    scene = room.scene_of(source, file, fault_settings.groups(groups), data, rigid)
    if quotas is not None:
        limits = room.read_quotas(quotas)
        room.refuse_beyond_quotas(scene, limits)
        chosen = {name: room.WithQuotas(policy, limits) for name, policy in chosen.items()}
    for note in scene.notes:
        warn(f"{scene.name}: {note}")
    settings, replays = room.SimulationSettings(round=round_seconds or scene.round), dict[str, room.Replay]()
    ended = 0
    try:
        for name, policy in chosen.items():
            ended = 0
            with progress(name, len(scene.jobs), counted=True, remaining=True) as update:

                def count(jobs: int, update: Callable[..., None] = update) -> None:
                    nonlocal ended
                    ended = jobs
                    update(completed=jobs)

                random_faults = fault_settings.source(scene.cluster.groups, seed)
                replays[name] = room.simulate(
                    scene.jobs, scene.cluster, scene.world(), policy, settings, random_faults, count
                )
    except KeyboardInterrupt:
        now, *later = [name for name in chosen if name not in replays]
        rest = f"; not started: {', '.join(later)}" if later else ""
        warn(f"interrupted while {now} had ended {ended:,} of {len(scene.jobs):,} jobs{rest}")
    if as_json:
        about = {
            "trace": scene.name,
            "jobs": len(scene.jobs),
            "accelerators": float(scene.cluster.capacity[:, 0].sum()),
            "round": settings.round,
            "seed": seed,
            "policies": {name: _plain(replay) for name, replay in replays.items()},
        }
        print(json.dumps(about))
    elif replays:
        _print_figures(replays)
        if tenants:
            _print_tenants(replays)
    for line in write_file(report if replays else None, lambda: room.html_report(scene, replays)):
        typer.echo(line, err=True)
    if len(replays) < len(chosen):
        raise typer.Exit(_INTERRUPTED)


def _print_figures(replays: Mapping[str, room.Replay]) -> None:
    """A row per policy; columns that the trace has no data for (tenants, prices, refusals) are left out."""
    figures = {name: room.summary(replay) for name, replay in replays.items()}
    several_tenants = any(len(room.tenant_summaries(replay)) > 1 for replay in replays.values())
    shown: dict[str, Callable[[Mapping[str, float]], str]] = {
        ">mean h": lambda of: _hours(of["avg_jct_h"]),
        ">p99 h": lambda of: _hours(of["p99_jct_h"]),
        ">makespan": lambda of: _hours(of["makespan_h"]),
        ">deadlines": lambda of: f"{of['deadlines_met']:.1%}" if of["deadlines"] else "none",
        **({">Jain": lambda of: f"{of['jain']:.3f}"} if several_tenants else {}),
        ">restarts": lambda of: f"{of['restarts']:.2f}",
        ">used": lambda of: f"{of['utilization']:.1%}",
        **(
            {">cost": lambda of: format_money(of["cost"])} if any(f["cost"] for f in figures.values()) else {}
        ),
        **(
            {">refused": lambda of: f"{of['refused']:.0f}"}
            if any(f["refused"] for f in figures.values())
            else {}
        ),
    }
    rows = [(name, *(show(of) for show in shown.values())) for name, of in figures.items()]
    print_rows(("policy", *shown), rows)


def _print_tenants(replays: Mapping[str, room.Replay]) -> None:
    rows = [
        (
            *(
                name,
                tenant.name,
                f"{tenant.jobs:,}",
                _hours(tenant.completion / HOUR),
                f"{tenant.served:.1%}",
            ),
            f"{tenant.attained / HOUR:,.1f}",
            format_money(tenant.spent) if tenant.spent else "",
        )
        for name, replay in replays.items()
        for tenant in room.tenant_summaries(replay)
    ]
    print_rows(("policy", "tenant", ">jobs", ">mean h", ">served", ">GPU-h", ">cost"), rows)


def _hours(hours: float) -> str:
    return "" if math.isnan(hours) else f"{hours:.3f}"


def _plain(replay: room.Replay) -> dict[str, Any]:
    tenants = [_without_nan(to_plain(tenant)) for tenant in room.tenant_summaries(replay)]
    return {**_without_nan(room.summary(replay)), "tenants": tenants}


def _without_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures with None for NaN and infinity, which JSON cannot hold."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
