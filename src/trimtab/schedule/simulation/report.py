"""Simulations of one trace as one self-contained HTML page: figures, charts, longest waits and reasons."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from trimtab.core import HOUR, format_duration, format_money
from trimtab.page import COLORS, bullets, chart, page, table
from trimtab.schedule.cluster import Floats
from trimtab.schedule.simulation.replay import Replay, RunSegment, summary
from trimtab.schedule.simulation.scene import Scene
from trimtab.schedule.simulation.simulator import NOTED

MOST_JOBS = 300
"""Rows of a Gantt chart; where there are more jobs, it shows those that waited longest."""

_MOST_SEGMENTS = 8000
_BINS = 400
_POINTS = 500  # of one line in a chart


def drawn(replay: Replay) -> tuple[tuple[RunSegment, ...], str]:
    """Bars of a Gantt chart, and a sentence about jobs that it leaves out; moves in one form are one bar."""
    by_job: dict[int, list[RunSegment]] = defaultdict(list)
    for segment in replay.segments:
        bars = by_job[segment.job]
        same = bars and (bars[-1].group, bars[-1].workers) == (segment.group, segment.workers)
        begin = bars.pop().start if same and abs(bars[-1].end - segment.start) < 1e-6 else segment.start
        bars.append(replace(segment, start=begin))
    waited = replay.waited
    chosen: list[RunSegment] = []
    jobs = sorted(by_job, key=lambda job: (-waited[job], job))[:MOST_JOBS]
    for count, job in enumerate(jobs):
        if chosen and len(chosen) + len(by_job[job]) > _MOST_SEGMENTS:
            jobs = jobs[:count]
            break
        chosen += by_job[job]
    some = f"The {len(jobs):,} of {len(by_job):,} jobs that waited longest"
    shown = f"All {len(jobs):,} jobs that ran" if len(jobs) == len(by_job) else some
    return tuple(chosen), f"{shown}, in order of submission."


def busy(replay: Replay) -> tuple[Floats, Floats]:
    """Moments, and between them the share of each group's accelerators (or CPUs) that jobs held."""
    begin = float(replay.submitted[0])
    end = max((segment.end for segment in replay.segments), default=begin + 1.0)
    edges = np.linspace(begin, end, _BINS + 1)
    shares = np.zeros((len(replay.cluster.groups), _BINS))
    for index, group in enumerate(replay.cluster.groups):
        here = [segment for segment in replay.segments if segment.group == index]
        capacity = group.nodes * (group.gpus or group.cpus)
        if here and capacity:
            workers = [replay.jobs[segment.job].worker for segment in here]
            takes = [worker.gpus if group.gpus else worker.cpus for worker in workers]
            amount = np.array([segment.workers for segment in here]) * np.array(takes)
            starts = np.array([segment.start for segment in here])
            ends = np.array([segment.end for segment in here])
            held = _held_until(edges, starts, amount) - _held_until(edges, ends, amount)
            shares[index] = np.diff(held) / np.diff(edges) / capacity
    return edges, shares


def _held_until(moments: Floats, since: Floats, amount: Floats) -> Floats:
    """The integral until each moment of amounts that are held from `since` on, for ever."""
    order = np.argsort(since)
    since, amount = since[order], amount[order]
    index = np.searchsorted(since, moments, "right")
    total = np.concatenate(([0.0], np.cumsum(amount)))[index]
    sums = np.concatenate(([0.0], np.cumsum(amount * since)))[index]
    held: Floats = total * moments - sums
    return held


def html_report(scene: Scene, replays: Mapping[str, Replay]) -> str:
    """The page; `replays` are by policy."""
    groups = scene.cluster.groups
    gpus = int(scene.cluster.capacity[:, 0].sum())
    named = ", ".join(
        f"{group.name} ({group.nodes} {f'× {group.gpus} {group.accelerator}' if group.gpus else 'CPU nodes'})"
        for group in groups
    )
    notes = ["a job ends when its work is done, and its nodes are given away at the next decision"]
    if has_tenants(replays.values()):
        notes.append(
            "Jain's index is over tenants: of their jobs' lives, the part in which they held nodes (1: equal)"
        )
    if has_prices(replays.values()):
        notes.append(
            "dollars: accelerators while jobs held them, data moved, and reserved nodes whether used or not"
        )
    body = (
        f"<p>{len(scene.jobs):,} jobs on {gpus:,} accelerators in {len(groups)} groups: {escape(named)}.</p>"
        f"<h2>Figures</h2>{_figures(replays)}"
        f"<h2>Time to completion</h2>{chart(_distribution(replays), 'Time to completion', True)}"
        f"{''.join(_policy(name, replay) for name, replay in replays.items())}"
        f"{bullets('Notes', scene.notes)}"
        f"{bullets('How to read it', notes)}"
    )
    return page(f"Trimtab: {scene.name}", f"Simulation of {scene.name}", body)


def has_prices(replays: Iterable[Replay]) -> bool:
    """Whether dollars are to be shown."""
    return any(replay.priced for replay in replays)


def has_tenants(replays: Iterable[Replay]) -> bool:
    """Whether fairness among tenants is to be shown."""
    return any(len(replay.tenants) > 1 for replay in replays)


def _policy(name: str, replay: Replay) -> str:
    """One policy's section: Gantt chart, use of groups, longest waits, refusals."""
    bars, note = drawn(replay)
    runs, use = f"{name}: runs of jobs", f"{name}: use of groups"
    refused = np.flatnonzero(replay.refused).tolist()
    reasons = [f"{replay.jobs[job].id}: {replay.why[job]}" for job in refused[:NOTED]]
    more = [f"and {len(refused) - NOTED} more"] if len(refused) > NOTED else []
    return (
        f"<h2>{escape(runs)}</h2><p><small>{escape(note)}</small></p>"
        f"{chart(_gantt(replay, bars), runs, False)}"
        f"<h2>{escape(use)}</h2>{chart(_busy(replay), use, False)}"
        f"<h2>{escape(name)}: longest waits, and why</h2>{_waiters(replay)}"
        f"{bullets(f'{name}: refused', reasons + more)}"
    )


def _figures(replays: Mapping[str, Replay]) -> str:
    """The table of figures; fairness only where there are tenants, dollars only where there are prices."""
    columns: dict[str, Callable[[Mapping[str, float]], str]] = {
        "Mean completion": lambda figures: _hours(figures["avg_jct_h"]),
        "99th percentile": lambda figures: _hours(figures["p99_jct_h"]),
        "Makespan": lambda figures: _hours(figures["makespan_h"]),
        "Deadlines": lambda figures: (
            f"{figures['deadlines_met']:.1%}" if figures["deadlines"] else "none set"
        ),
        "Jain": lambda figures: f"{figures['jain']:.3f}",
        "Restarts": lambda figures: f"{figures['restarts']:.2f}",
        "Utilization": lambda figures: f"{figures['utilization']:.1%}",
        "Cost": lambda figures: format_money(figures["cost"]),
        "Refused": lambda figures: f"{figures['refused']:.0f}",
    }
    if not has_tenants(replays.values()):
        del columns["Jain"]
    if not has_prices(replays.values()):
        del columns["Cost"]
    rows = []
    for name, replay in replays.items():
        figures = summary(replay)
        rows.append((name, *(show(figures) for show in columns.values())))
    return table(("Policy", *columns), rows, numbers=range(1, len(columns) + 1))


def _hours(hours: float) -> str:
    return "" if np.isnan(hours) else f"{hours:.3f} h"


def _waiters(replay: Replay) -> str:
    heads = ("Job", "Tenant", "Submitted", "Waited", "Ran", "Last reason")
    waited = replay.waited
    longest = [job for job in np.argsort(-waited, kind="stable")[:NOTED].tolist() if job in replay.why]
    rows = [
        (
            replay.jobs[job].id,
            replay.tenants[replay.tenant[job]],
            format_duration(float(replay.submitted[job])),
            format_duration(float(waited[job])),
            format_duration(float(replay.ran[job])),
            replay.why[job],
        )
        for job in longest
        if not replay.refused[job]
    ]
    if not rows:
        return "<p>No job waited longer than until the next decision.</p>"
    return table(heads, rows, numbers=(2, 3, 4))


def _lines(curves: Mapping[str, tuple[Floats, Floats]], hover: str, **line: Any) -> go.Figure:
    """Step lines by name, each with x and y; five digits are more than a screen shows."""
    figure = go.Figure()
    for index, (name, (x, y)) in enumerate(curves.items()):
        figure.add_trace(
            go.Scatter(
                x=np.round(x, 5).tolist(),
                y=np.round(y, 5).tolist(),
                mode="lines",
                name=escape(name),
                line={"shape": "hv", "color": COLORS[index % len(COLORS)], **line},
                hovertemplate=f"{hover}<extra>{escape(name)}</extra>",
            )
        )
    figure.update_layout(template="plotly_white", margin={"t": 20, "r": 10}, showlegend=True)
    return figure


def _distribution(replays: Mapping[str, Replay]) -> go.Figure:
    curves = {}
    for name, replay in replays.items():
        hours = np.sort(replay.completion) / HOUR
        share = np.arange(1, len(hours) + 1) / max(1, len(replay.jobs))
        points = np.unique(np.linspace(0, len(hours) - 1, min(len(hours), _POINTS)).astype(np.intp))
        curves[name] = (hours[points], share[points])
    figure = _lines(curves, "%{y:.1%} of jobs within %{x:.3g} h")
    figure.update_xaxes(type="log", title="hours from submission to the end")
    figure.update_yaxes(title="share of jobs", tickformat=".0%", range=[0, 1])
    figure.update_layout(height=420)
    return figure


def _busy(replay: Replay) -> go.Figure:
    edges, shares = busy(replay)
    curves = {
        group.name: (edges[:-1] / HOUR, shares[index]) for index, group in enumerate(replay.cluster.groups)
    }
    figure = _lines(curves, "%{x:.3g} h: %{y:.0%} held", width=1.5)
    figure.update_xaxes(title="hours since the trace began")
    figure.update_yaxes(title="share held", tickformat=".0%", rangemode="tozero")
    figure.update_layout(height=320)
    return figure


def _gantt(replay: Replay, shown: tuple[RunSegment, ...]) -> go.Figure:
    """One row per job in order of submission, one colour per group; more workers make a thicker bar."""
    figure = go.Figure()
    rows = {job: row for row, job in enumerate(sorted({segment.job for segment in shown}))}
    doublings = np.log2(max((segment.workers for segment in shown), default=1))
    for index, group in enumerate(replay.cluster.groups):
        here = [segment for segment in shown if segment.group == index]
        # From a third of a row for one worker to almost all of it for the largest gang, by doublings.
        share = [float(np.log2(segment.workers) / doublings) if doublings else 1.0 for segment in here]
        figure.add_trace(
            go.Bar(
                orientation="h",
                name=escape(group.name),
                y=[rows[segment.job] for segment in here],
                base=[round(segment.start / HOUR, 5) for segment in here],
                x=[round((segment.end - segment.start) / HOUR, 5) for segment in here],
                width=[0.3 + 0.6 * part for part in share],
                marker={"color": COLORS[index % len(COLORS)], "line": {"width": 0}},
                customdata=[
                    (
                        escape(replay.jobs[segment.job].id),
                        segment.workers,
                        f"{format_duration(segment.start)} to {format_duration(segment.end)}",
                    )
                    for segment in here
                ],
                hovertemplate="%{customdata[0]}: %{customdata[1]} workers, %{customdata[2]}"
                f"<extra>{escape(group.name)}</extra>",
            )
        )
    figure.update_xaxes(title="hours since the trace began")
    names = [escape(replay.jobs[job].id) for job in rows]
    every = max(1, len(names) // 40)
    figure.update_yaxes(
        autorange="reversed", tickvals=list(range(0, len(names), every)), ticktext=names[::every]
    )
    figure.update_layout(
        template="plotly_white",
        barmode="overlay",
        height=160 + min(1600, 14 * len(rows)),
        margin={"t": 20, "r": 10},
        showlegend=True,
    )
    return figure
