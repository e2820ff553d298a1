"""Jobs over time: how long each waited and ran, and when one that waits is believed to start."""

from collections.abc import Sequence
from datetime import UTC, datetime

from trimtab.serve.dashboard.chart import Trace, axis, chart_text, figure
from trimtab.serve.dashboard.words import moment
from trimtab.store import JobRecord, JobState

_COLORS = {
    "waited": "#c9a227",
    "believed": "#8a93a0",
    JobState.STARTING.value: "#6cc5b0",
    JobState.RUNNING.value: "#3ca951",
    JobState.STOPPING.value: "#a463f2",
    JobState.ENDED.value: "#4269d0",
    JobState.FAILED.value: "#e4463a",
    JobState.CANCELLED.value: "#9c6b4e",
}
_THINNEST = 0.05  # s that a bar is drawn with at least
Span = tuple[str, float, float]
"""What it is of, from, to; seconds since the epoch."""


def spans(record: JobRecord, now: float) -> tuple[Span, ...]:
    """What is known of a job's time; runs of one that is over count together, up to its end."""
    run, state = record.run, record.state
    end = run.ended if run.ended is not None else now
    if state is JobState.WAITING:
        believed = record.outlook.start
        ahead: tuple[Span, ...] = (("believed", now, believed),) if believed and believed > now else ()
        return (("waited", record.created, now), *ahead)
    began = run.since if run.since is not None else max(record.created, end - run.seconds)
    if began >= end:
        return (("waited", record.created, end),)
    return (("waited", record.created, began), (state.value, began, end))


def timeline(records: Sequence[JobRecord], now: float) -> Trace:
    """The chart, newest job on top."""
    drawn: dict[str, list[tuple[str, float, float]]] = {}
    labels = [f"{record.name} {record.id}" for record in records]
    for record, label in zip(records, labels, strict=True):
        for what, begin, end in spans(record, now):
            drawn.setdefault(what, []).append((label, begin, end))
    traces = [_bars(what, drawn[what]) for what in _COLORS if what in drawn]
    upside = axis(
        "", autorange="reversed", categoryarray=[chart_text(each) for each in labels], type="category"
    )
    return figure(traces, 90 + 24 * len(records), axis("", type="date"), upside, barmode="overlay")


def _bars(what: str, rows: list[tuple[str, float, float]]) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": what,
        "y": [chart_text(label) for label, _, _ in rows],
        "base": [_plotted(begin) for _, begin, _ in rows],
        "x": [max(_THINNEST, end - begin) * 1000 for _, begin, end in rows],
        "marker": {"color": _COLORS[what]},
        "text": [f"{what} from {moment(begin)} to {moment(end)}" for _, begin, end in rows],
        "textposition": "none",
        "hovertemplate": "%{y}<br>%{text}<extra></extra>",
    }


def _plotted(seconds: float) -> str:
    """A moment to the millisecond, as a chart wants it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
