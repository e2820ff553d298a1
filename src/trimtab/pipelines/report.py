"""A sized pipeline as one HTML page that needs nothing else: CPU and memory over time, table, reasons."""

from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from trimtab.core import GIB, format_bytes, format_duration
from trimtab.page import COLORS, bullets, chart, page, table
from trimtab.pipelines.quantity import format_cpu, format_memory
from trimtab.pipelines.sizing import Reserved, Sized

_POINTS = 1000  # of one stage's line


def pipeline_report(name: str, sized: Sequence[Sized], reserved: Mapping[str, Reserved]) -> str:
    """The whole page; `reserved` by the way of sizing, in words."""
    total = sum(each.use.seconds for each in sized)
    cpu, memory = "CPU over time", "Memory over time"
    body = (
        f"<p>{len(sized)} stages, one after the other in {escape(format_duration(total))}."
        " Dashed lines are what each stage should ask for.</p>"
        f"<h2>{cpu}</h2>{chart(_cpu(sized), cpu, True)}"
        f"<h2>{memory}</h2>{chart(_memory(sized), memory, False)}"
        f"<h2>Stages</h2>{_stages(sized)}"
        f"<h2>What the pipeline reserves</h2>{_reserved(reserved)}"
        f"{bullets('Why', [f'{each.stage.name}: {each.reason}' for each in sized])}"
        f"{bullets('How to read it', _READING)}"
    )
    return page(f"Trimtab: {name}", f"Pipeline {name}", body)


_READING = (
    "every stage ran by itself in a control group of its own; time is of this machine",
    "CPU is what the stage used, and what it would have used while it waited for a core that others had",
    "memory is what the kernel charges the stage with, less file cache that it could drop at once, and no"
    " less than its largest process has resident",
    "a reservation is a request times the time it is held; one size for all is that of the largest stage",
)


def _cpu(sized: Sequence[Sized]) -> go.Figure:
    figure = _figure(sized, [each.profile.series.cpu for each in sized], [each.request.cpu for each in sized])
    figure.update_yaxes(title="cores", rangemode="tozero")
    return figure


def _memory(sized: Sequence[Sized]) -> go.Figure:
    values = [[count / GIB for count in each.profile.series.memory] for each in sized]
    figure = _figure(sized, values, [each.request.memory / GIB for each in sized])
    figure.update_yaxes(title="GiB", rangemode="tozero")
    return figure


def _figure(
    sized: Sequence[Sized], values: Sequence[Sequence[float]], requests: Sequence[float]
) -> go.Figure:
    """A line per stage, the stages behind one another, and the request of each as a dashed line."""
    figure = go.Figure()
    start = 0.0
    for number, (each, line, request) in enumerate(zip(sized, values, requests, strict=True)):
        color = COLORS[number % len(COLORS)]
        every = max(1, len(line) // _POINTS)
        name = escape(each.stage.name)
        times = [round(start + time, 3) for time in each.profile.series.time]
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
                x=[round(start, 3), round(start + each.use.seconds, 3)],
                y=[request, request],
                mode="lines",
                name=f"{name}: request",
                showlegend=False,
                line={"color": color, "width": 1.5, "dash": "dash"},
                hovertemplate="request %{y:.3g}<extra>" + name + "</extra>",
            )
        )
        start += each.use.seconds
    figure.update_xaxes(title="seconds since the first stage began")
    figure.update_layout(template="plotly_white", height=380, margin={"t": 20, "r": 10}, showlegend=True)
    return figure


def _stages(sized: Sequence[Sized]) -> str:
    heads = ("Stage", "Time", "CPU peak", "CPU mean", "Memory peak", "CPU asked", "Memory asked")
    return table(heads, [_row(each) for each in sized], numbers=range(1, len(heads)))


def _row(each: Sized) -> tuple[str, ...]:
    use, current = each.use, each.stage.current
    before = "none" if current.cpu is None else format_cpu(current.cpu)
    memory_before = "none" if current.memory is None else format_memory(current.memory)
    return (
        each.stage.name,
        format_duration(use.seconds),
        f"{use.cpu_peak:.2f}",
        f"{use.cpu_mean:.2f}",
        format_bytes(use.memory_peak),
        f"{before} → {format_cpu(each.request.cpu)}",
        f"{memory_before} → {format_memory(each.request.memory)}",
    )


def _reserved(reserved: Mapping[str, Reserved]) -> str:
    rows = [
        (name, f"{each.core_seconds:,.1f}", f"{each.byte_seconds / GIB:,.1f}")
        for name, each in reserved.items()
    ]
    return table(("Sized how", "Core·s", "GiB·s"), rows, numbers=(1, 2))
