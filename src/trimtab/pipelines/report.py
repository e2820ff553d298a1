"""A sized pipeline as a self-contained HTML page: CPU and memory over time, table, reasons."""

from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from trimtab.core import GIB, format_bytes, format_duration
from trimtab.page import COLORS, bullets, chart, page, table
from trimtab.pipelines.quantity import format_cpu, format_memory
from trimtab.pipelines.sizing import Reserved, Sized

_POINTS = 1000  # of one stage's line


def pipeline_report(name: str, sized: Sequence[Sized], reserved: Mapping[str, Reserved]) -> str:
    """The page of a sized pipeline; `reserved` is by the way of sizing."""
    total = sum(stage.use.seconds for stage in sized)
    cpu_lines = [stage.profile.series.cpu for stage in sized]
    memory_lines = [[count / GIB for count in stage.profile.series.memory] for stage in sized]
    cpu = _figure(sized, cpu_lines, [stage.request.cpu for stage in sized], "cores")
    memory = _figure(sized, memory_lines, [stage.request.memory / GIB for stage in sized], "GiB")
    rows = [
        (way, f"{amount.core_seconds:,.1f}", f"{amount.byte_seconds / GIB:,.1f}")
        for way, amount in reserved.items()
    ]
    body = (
        f"<p>{len(sized)} stages, one after the other in {escape(format_duration(total))}."
        " Dashed lines are the new requests.</p>"
        f"<h2>CPU over time</h2>{chart(cpu, 'CPU over time', True)}"
        f"<h2>Memory over time</h2>{chart(memory, 'Memory over time', False)}"
        f"<h2>Stages</h2>{_stages(sized)}"
        f"<h2>Reservations of the pipeline</h2>{table(('Sizing', 'Core·s', 'GiB·s'), rows, numbers=(1, 2))}"
        f"{bullets('Why', [f'{stage.stage.name}: {stage.reason}' for stage in sized])}"
        f"{bullets('How to read it', _READING)}"
    )
    return page(f"Trimtab: {name}", f"Pipeline {name}", body)


_READING = (
    "every stage ran by itself in its own control group; times are those of this machine",
    "CPU is the stage's use, plus the time that it waited for busy cores",
    "memory is the kernel's charge without reclaimable file cache, and at least the resident memory of the"
    " stage's largest process",
    "a reservation is a request times the time it is held; one size for all is that of the largest stage",
)


def _figure(
    sized: Sequence[Sized], values: Sequence[Sequence[float]], requests: Sequence[float], unit: str
) -> go.Figure:
    """A line per stage, one stage after the other, and stage request as a dashed line."""
    figure = go.Figure()
    start = 0.0
    for number, (stage, line, request) in enumerate(zip(sized, values, requests, strict=True)):
        color = COLORS[number % len(COLORS)]
        every = max(1, len(line) // _POINTS)
        name = escape(stage.stage.name)
        times = [round(start + time, 3) for time in stage.profile.series.time]
        figure.add_trace(
            go.Scatter(
                x=times[::every],
                y=[round(value, 4) for value in line[::every]],
                mode="lines",
                name=name,
                line={"color": color, "width": 1.5},
                hovertemplate="%{x:.1f} s: %{y:.3g}<extra>" + name + "</extra>",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[round(start, 3), round(start + stage.use.seconds, 3)],
                y=[request, request],
                mode="lines",
                name=f"{name}: request",
                showlegend=False,
                line={"color": color, "width": 1.5, "dash": "dash"},
                hovertemplate="request %{y:.3g}<extra>" + name + "</extra>",
            )
        )
        start += stage.use.seconds
    figure.update_xaxes(title="seconds since the first stage began")
    figure.update_yaxes(title=unit, rangemode="tozero")
    figure.update_layout(template="plotly_white", height=380, margin={"t": 20, "r": 10}, showlegend=True)
    return figure


def _stages(sized: Sequence[Sized]) -> str:
    heads = ("Stage", "Time", "CPU peak", "CPU mean", "Memory peak", "CPU request", "Memory request")
    rows = []
    for stage in sized:
        use, current = stage.use, stage.stage.current
        cpu_before = "none" if current.cpu is None else format_cpu(current.cpu)
        memory_before = "none" if current.memory is None else format_memory(current.memory)
        cells = (
            stage.stage.name,
            format_duration(use.seconds),
            f"{use.cpu_peak:.2f}",
            f"{use.cpu_mean:.2f}",
            format_bytes(use.memory_peak),
            f"{cpu_before} → {format_cpu(stage.request.cpu)}",
            f"{memory_before} → {format_memory(stage.request.memory)}",
        )
        rows.append(cells)
    return table(heads, rows, numbers=range(1, len(heads)))
