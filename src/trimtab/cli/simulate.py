"""`trimtab simulate`: what policies would do with a trace."""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.warning import warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from trimtab.schedule import FaultSettings, Replay, Scene, SchedulingPolicy

_INTERRUPTED = 130
_CLUSTER, _OUTPUT = "What it runs on, and what goes wrong", "What to print and write"


def simulate(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="A trace's file, or a folder of data sets.", show_default=False),
    ],
    part: Annotated[
        str | None, typer.Option(help="Which trace, where there are several: saturn-1.", show_default=False)
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Who runs next: fifo, trimtab, las:KEY=VALUE…; several are compared."),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(help="A YAML file of groups of nodes.", show_default=False, rich_help_panel=_CLUSTER),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder of measured speeds, if not where the trace is.",
            show_default=False,
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    round_seconds: Annotated[
        float | None,
        typer.Option(
            "--round",
            min=1.0,
            help="Seconds between decisions; 60 for jobs that adapt, 360 for others.",
            show_default=False,
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    rigid: Annotated[
        bool,
        typer.Option("--rigid", help="Jobs keep the size they asked for.", rich_help_panel=_CLUSTER),
    ] = False,
    quotas: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file of tenants with guarantees.", show_default=False, rich_help_panel=_CLUSTER
        ),
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="node-loss=1/30d, repair=1h, spot=0.1/h, refill=30m, slow=2%, slowness=2, job-failure=1/d.",
            show_default=False,
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Where chance starts.", rich_help_panel=_CLUSTER)] = 0,
    tenants: Annotated[
        bool, typer.Option("--tenants", help="Figures of each tenant as well.", rich_help_panel=_OUTPUT)
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page with charts.", show_default=False, rich_help_panel=_OUTPUT
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON: hours, shares, dollars.", rich_help_panel=_OUTPUT),
    ] = False,
) -> None:
    """Replay a trace under one policy or several, and compare them. The same policies run the fleet.

    `trimtab simulate ../data --part saturn-1 --policy trimtab --policy sia --report out.html`

    Speeds come from measurements, or from the trace itself; without `--cluster`, the cluster is the one the
    trace was made for. The same seed gives the same answer. Ctrl-C shows what has been simulated so far.
    """
    from rich.console import Console

    from trimtab.kernel import check_writable, write_whole
    from trimtab.schedule import html_report, policy

    if report is not None:
        check_writable(report)
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
        console = Console(highlight=False)
        _print_figures(console, replays)
        if tenants:
            _print_tenants(console, replays)
    if report is not None and replays:
        write_whole(report, html_report(scene, replays))
        typer.echo(f"report: {report.resolve()}", err=True)
    if len(replays) < len(chosen):
        raise typer.Exit(_INTERRUPTED)


def _within_quotas(
    policies: Mapping[str, "SchedulingPolicy"], path: Path, scene: "Scene"
) -> dict[str, "SchedulingPolicy"]:
    from trimtab.schedule import WithQuotas, read_quotas, refuse_beyond_quotas

    quotas = read_quotas(path)
    refuse_beyond_quotas(scene, quotas)
    return {name: WithQuotas(policy, quotas) for name, policy in policies.items()}


def _scene(
    path: Path, part: str | None, cluster: Path | None, data: Path | None, rigid: bool, faults: str | None
) -> tuple["Scene", "FaultSettings"]:
    from trimtab.schedule import FaultSettings, find_trace, parse_faults, read_cluster, scene_of

    told = FaultSettings() if faults is None else parse_faults(faults)
    trace, file = find_trace(path, part)
    groups = read_cluster(cluster) if cluster is not None else trace.groups
    return scene_of(trace, file, told.groups(groups), data, rigid), told


def _run(
    scene: "Scene",
    policies: Mapping[str, "SchedulingPolicy"],
    round_seconds: float,
    told: "FaultSettings",
    seed: int,
) -> dict[str, "Replay"]:
    """The policies one after the other; those that were finished when Ctrl-C came."""
    from trimtab.schedule import SimulationSettings, simulate as replay

    settings = SimulationSettings(round=round_seconds)
    done: dict[str, Replay] = {}
    ended = 0
    try:
        for name, policy in policies.items():
            ended = 0
            with _bar(name, len(scene.jobs)) as show:

                def tell(count: int, show: Callable[[int], None] = show) -> None:
                    nonlocal ended
                    ended = count
                    show(count)

                faults = told.source(scene.cluster.groups, seed)
                done[name] = replay(scene.jobs, scene.cluster, scene.world(), policy, settings, faults, tell)
    except KeyboardInterrupt:
        left = [name for name in policies if name not in done]
        rest = f"; not begun: {', '.join(left[1:])}" if left[1:] else ""
        warn(f"interrupted while {left[0]} had ended {ended:,} of {len(scene.jobs):,} jobs{rest}")
    return done


@contextmanager
def _bar(name: str, jobs: int) -> "Iterator[Callable[[int], None]]":
    """A progress bar on standard error, by jobs that ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    shown = Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    )
    with shown as bar:
        task = bar.add_task(name, total=jobs)
        yield lambda count: bar.update(task, completed=count)


def _print_figures(console: "Console", replays: Mapping[str, "Replay"]) -> None:
    from rich.table import Table

    from trimtab.core import format_money
    from trimtab.schedule import summary

    table = Table(box=None, pad_edge=False)
    table.add_column("policy", overflow="fold")
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
    console.print(table)


def _print_tenants(console: "Console", replays: Mapping[str, "Replay"]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core import HOUR, format_money
    from trimtab.schedule import tenant_summaries

    table = Table(box=None, pad_edge=False)
    for head in ("policy", "tenant", "jobs", "mean h", "served", "GPU-h", "cost"):
        table.add_column(head, justify="left" if head in ("policy", "tenant") else "right")
    for name, replay in replays.items():
        for each in tenant_summaries(replay):
            table.add_row(
                name,
                escape(each.name),
                f"{each.jobs:,}",
                _hours(each.completion / HOUR),
                f"{each.served:.1%}",
                f"{each.attained / HOUR:,.1f}",
                format_money(each.spent),
            )
    console.print(table)


def _hours(hours: float) -> str:
    return "" if math.isnan(hours) else f"{hours:.3f}"


def _as_json(scene: "Scene", replays: Mapping[str, "Replay"], round_seconds: float, seed: int) -> Any:
    from trimtab.core import to_plain
    from trimtab.schedule import summary, tenant_summaries

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
