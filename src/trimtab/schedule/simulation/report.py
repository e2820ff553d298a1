"""Simulations of one trace as one self-contained HTML page: figures, charts, who waited and why."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go

from trimtab.core import format_duration, format_money
from trimtab.page import COLORS, bullets, chart, page, table
from trimtab.schedule.cluster import Floats, Group
from trimtab.schedule.simulation.replay import Replay, RunSegment, summary
from trimtab.schedule.simulation.scene import Scene
from trimtab.schedule.simulation.simulator import NOTED

MOST_JOBS = 300
"""Rows of a Gantt chart; beyond that, those who waited longest."""

_MOST_SEGMENTS = 8000
_BINS = 400


@dataclass(frozen=True, slots=True)
class GanttBars:
    """Bars of a Gantt chart, and a sentence about jobs that it leaves out."""

    segments: tuple[RunSegment, ...]
    note: str


def drawn(replay: Replay) -> GanttBars:
    """All jobs that ran where they are few, else those that waited longest; moves in one form are one bar."""
    by_job: dict[int, list[RunSegment]] = defaultdict(list)
    for each in replay.segments:
        mine = by_job[each.job]
        if mine and _goes_on(mine[-1], each.group, each.workers, each.start):
            mine[-1] = RunSegment(each.job, each.group, each.workers, mine[-1].start, each.end)
        else:
            mine.append(RunSegment(each.job, each.group, each.workers, each.start, each.end))
    waited = replay.waited
    chosen: list[RunSegment] = []
    jobs = sorted(by_job, key=lambda job: (-waited[job], job))[:MOST_JOBS]
    for count, job in enumerate(jobs):
        if chosen and len(chosen) + len(by_job[job]) > _MOST_SEGMENTS:
            jobs = jobs[:count]
            break
        chosen += by_job[job]
    if len(jobs) == len(by_job):
        return GanttBars(tuple(chosen), f"All {len(jobs):,} jobs that ran, in order of submission.")
    return GanttBars(
        tuple(chosen),
        f"The {len(jobs):,} of {len(by_job):,} jobs that waited longest, in order of submission.",
    )


def busy(replay: Replay) -> tuple[Floats, Floats]:
    """Moments, and between them the share of each group's accelerators (or CPUs) that jobs held."""
    begin = float(replay.submitted[0])
    edges = np.linspace(begin, max((each.end for each in replay.segments), default=begin + 1.0), _BINS + 1)
    shares = np.zeros((len(replay.cluster.groups), _BINS))
    for index, group in enumerate(replay.cluster.groups):
        here = [each for each in replay.segments if each.group == index]
        capacity = group.nodes * (group.gpus or group.cpus)
        if here and capacity:
            workers = [replay.jobs[each.job].worker for each in here]
            each_takes = [worker.gpus if group.gpus else worker.cpus for worker in workers]
            amount = np.array([each.workers for each in here]) * np.array(each_takes)
            starts, ends = (np.array([getattr(each, name) for each in here]) for name in ("start", "end"))
            held = _held_until(edges, starts, amount) - _held_until(edges, ends, amount)
            shares[index] = np.diff(held) / np.diff(edges) / capacity
    return edges, shares


def _held_until(moments: Floats, since: Floats, amount: Floats) -> Floats:
    """The integral until each moment of what is held from `since` on, for ever."""
    order = np.argsort(since)
    since, amount = since[order], amount[order]
    index = np.searchsorted(since, moments, "right")
    total = np.concatenate(([0.0], np.cumsum(amount)))[index]
    begun = np.concatenate(([0.0], np.cumsum(amount * since)))[index]
    held: Floats = total * moments - begun
    return held


def _goes_on(last: RunSegment, group: int, workers: int, start: float) -> bool:
    return last.group == group and last.workers == workers and abs(last.end - start) < 1e-6


_HOUR = 3600.0
_POINTS = 500  # of one line in a chart


def html_report(scene: Scene, replays: Mapping[str, Replay]) -> str:
    """The whole page; `replays` are by policy."""
    groups = scene.cluster.groups
    gpus = int(scene.cluster.capacity[:, 0].sum())
    body = (
        f"<p>{len(scene.jobs):,} jobs on {gpus:,} accelerators in {len(groups)} groups:"
        f" {escape(', '.join(_named(group) for group in groups))}.</p>"
        f"<h2>Figures</h2>{_figures(replays)}"
        f"<h2>Time to completion</h2>{chart(_distribution(replays), 'Time to completion', True)}"
        f"{''.join(_policy(name, replay) for name, replay in replays.items())}"
        f"{bullets('Notes', scene.notes)}"
        f"{bullets('How to read it', _READING)}"
    )
    return page(f"Trimtab: {scene.name}", f"Simulation of {scene.name}", body)


_READING = (
    "a job ends when its work is done, and its nodes are given away at the next decision",
    "Jain's index is over tenants: of their jobs' lives, the part in which they held nodes (1: all alike)",
    "dollars: accelerators while jobs held them, data moved, and reserved nodes whether used or not",
)


def _policy(name: str, replay: Replay) -> str:
    """One policy's own part: the Gantt chart, what groups were busy with, who waited longest."""
    shown = drawn(replay)
    ran, held = f"{name}: who ran when", f"{name}: how busy groups were"
    return (
        f"<h2>{escape(ran)}</h2><p><small>{escape(shown.note)}</small></p>"
        f"{chart(_gantt(replay, shown.segments), ran, False)}"
        f"<h2>{escape(held)}</h2>{chart(_busy(replay), held, False)}"
        f"<h2>{escape(name)}: who waited longest, and why</h2>{_waiters(replay)}"
        f"{bullets(f'{name}: refused', _refused(replay))}"
    )


def _refused(replay: Replay) -> list[str]:
    jobs = np.flatnonzero(replay.refused).tolist()
    more = [f"and {len(jobs) - NOTED} more"] if len(jobs) > NOTED else []
    return [f"{replay.jobs[job].id}: {replay.why[job]}" for job in jobs[:NOTED]] + more


def _figures(replays: Mapping[str, Replay]) -> str:
    heads = (
        "Policy",
        "Mean completion",
        "99th percentile",
        "Makespan",
        "Deadlines",
        "Jain",
        "Restarts",
        "Utilization",
        "Cost",
        "Refused",
    )
    rows = [(name, *_cells(summary(replay))) for name, replay in replays.items()]
    return table(heads, rows, numbers=range(1, len(heads)))


def _cells(figures: Mapping[str, float]) -> tuple[str, ...]:
    met = f"{figures['deadlines_met']:.1%}" if figures["deadlines"] else "none set"
    return (
        *(_hours(figures[key]) for key in ("avg_jct_h", "p99_jct_h", "makespan_h")),
        met,
        f"{figures['jain']:.3f}",
        f"{figures['restarts']:.2f}",
        f"{figures['utilization']:.1%}",
        format_money(figures["cost"]),
        f"{figures['refused']:.0f}",
    )


def _hours(hours: float) -> str:
    return "" if np.isnan(hours) else f"{hours:.3f} h"


def _waiters(replay: Replay) -> str:
    heads = ("Job", "Tenant", "Submitted", "Waited", "Ran", "Why, when last asked")
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
        return "<p>Nobody waited longer than until the next decision.</p>"
    return table(heads, rows, numbers=(2, 3, 4))


def _distribution(replays: Mapping[str, Replay]) -> go.Figure:
    figure = go.Figure()
    for index, (name, replay) in enumerate(replays.items()):
        hours = np.sort(replay.completion) / _HOUR
        share = np.arange(1, len(hours) + 1) / max(1, len(replay.jobs))
        chosen = _thinned(len(hours))
        figure.add_trace(
            go.Scatter(
                x=_rounded(hours[chosen]),
                y=_rounded(share[chosen]),
                mode="lines",
                name=escape(name),
                line={"shape": "hv", "color": COLORS[index % len(COLORS)]},
                hovertemplate="%{y:.1%} of jobs within %{x:.3g} h<extra>" + escape(name) + "</extra>",
            )
        )
    figure.update_xaxes(type="log", title="hours from submission to the end")
    figure.update_yaxes(title="share of jobs", tickformat=".0%", range=[0, 1])
    figure.update_layout(template="plotly_white", height=420, margin={"t": 20, "r": 10}, showlegend=True)
    return figure


def _gantt(replay: Replay, shown: tuple[RunSegment, ...]) -> go.Figure:
    """One row per job in order of submission, one colour per group; more workers make a thicker bar."""
    figure = go.Figure()
    rows = {job: row for row, job in enumerate(sorted({each.job for each in shown}))}
    most = max((each.workers for each in shown), default=1)
    for index, group in enumerate(replay.cluster.groups):
        here = [each for each in shown if each.group == index]
        figure.add_trace(
            go.Bar(
                orientation="h",
                name=escape(group.name),
                y=[rows[each.job] for each in here],
                base=[round(each.start / _HOUR, 5) for each in here],
                x=[round((each.end - each.start) / _HOUR, 5) for each in here],
                width=[_thickness(each.workers, most) for each in here],
                marker={"color": COLORS[index % len(COLORS)], "line": {"width": 0}},
                customdata=[
                    (escape(replay.jobs[each.job].id), each.workers, _span(each.start, each.end))
                    for each in here
                ],
                hovertemplate="%{customdata[0]}: %{customdata[1]} workers, %{customdata[2]}<extra>"
                + escape(group.name)
                + "</extra>",
            )
        )
    figure.update_xaxes(title="hours since the trace began")
    names = [escape(replay.jobs[job].id) for job in rows]
    every = max(1, len(names) // 40)
    figure.update_yaxes(
        autorange="reversed", tickvals=list(range(0, len(names), every)), ticktext=names[::every]
    )
    height = 160 + min(1600, 14 * len(rows))
    figure.update_layout(
        template="plotly_white",
        barmode="overlay",
        height=height,
        margin={"t": 20, "r": 10},
        showlegend=True,
    )
    return figure


def _busy(replay: Replay) -> go.Figure:
    figure = go.Figure()
    edges, shares = busy(replay)
    for index, group in enumerate(replay.cluster.groups):
        figure.add_trace(
            go.Scatter(
                x=_rounded(edges[:-1] / _HOUR),
                y=_rounded(shares[index]),
                mode="lines",
                name=escape(group.name),
                line={"shape": "hv", "width": 1.5, "color": COLORS[index % len(COLORS)]},
                hovertemplate="%{x:.3g} h: %{y:.0%} held<extra>" + escape(group.name) + "</extra>",
            )
        )
    figure.update_xaxes(title="hours since the trace began")
    figure.update_yaxes(title="share held", tickformat=".0%", rangemode="tozero")
    figure.update_layout(template="plotly_white", height=320, margin={"t": 20, "r": 10}, showlegend=True)
    return figure


def _thickness(workers: int, most: int) -> float:
    """From a third of a row for one worker to almost all of it for the largest gang, by doublings."""
    return 0.3 + 0.6 * (float(np.log2(workers) / np.log2(most)) if most > 1 else 1.0)


def _span(start: float, end: float) -> str:
    return f"{format_duration(start)} to {format_duration(end)}"


def _thinned(count: int) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Which of so many points are drawn, the first and last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, _POINTS)).astype(np.intp))


def _rounded(values: Floats) -> list[float]:
    """Five digits after the point are more than a screen shows, and make the page smaller."""
    return [float(value) for value in np.round(values, 5)]


def _named(group: Group) -> str:
    nodes = f"{group.nodes} × {group.gpus} {group.accelerator}" if group.gpus else f"{group.nodes} CPU nodes"
    return f"{group.name} ({nodes})"
