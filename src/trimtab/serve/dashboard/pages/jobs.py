"""Jobs: which run, wait or have ended, why, and when; and one job with its log."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from nicegui.element import Element

from trimtab.core import format_duration, format_money
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import EVERY, Chart, Column, Table, Trace, axis, chart_text, moment
from trimtab.store import JobRecord, JobState, Page, Role

_SPAN_COLORS = {
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
"""Kind, begin and end; seconds since the epoch."""


def spans(record: JobRecord, now: float) -> tuple[Span, ...]:
    """Spans of a job's time; the runs of an ended job are shown as one, up to its end."""
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
    bars: dict[str, list[tuple[str, float, float]]] = {}
    labels = [chart_text(f"{record.name} {record.id}") for record in records]
    for record, label in zip(records, labels, strict=True):
        for kind, begin, end in spans(record, now):
            bars.setdefault(kind, []).append((label, begin, end))
    traces = [_bars(kind, bars[kind]) for kind in _SPAN_COLORS if kind in bars]
    y = axis("", autorange="reversed", categoryarray=labels, type="category")
    return widgets.figure(traces, 90 + 24 * len(records), axis("", type="date"), y, barmode="overlay")


def _bars(kind: str, bars: list[tuple[str, float, float]]) -> Trace:
    begins = [datetime.fromtimestamp(begin, UTC) for _, begin, _ in bars]
    return {
        "type": "bar",
        "orientation": "h",
        "name": kind,
        "y": [label for label, _, _ in bars],
        "base": [begin.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] for begin in begins],
        "x": [max(_THINNEST, end - begin) * 1000 for _, begin, end in bars],
        "marker": {"color": _SPAN_COLORS[kind]},
        "text": [f"{kind} from {moment(begin)} to {moment(end)}" for _, begin, end in bars],
        "textposition": "none",
        "hovertemplate": "%{y}<br>%{text}<extra></extra>",
    }


async def show_log(visit: Visit, id: str) -> Callable[[], Awaitable[None]]:
    """Show the end of the log; the function that is returned shows new text, until the log has ended."""
    status = widgets.notice()
    shown = widgets.text("pre", "", "log", {"tabindex": "0", "aria-label": "Log", "role": "region"})
    over = False

    async def look() -> None:
        nonlocal over
        if over:
            return
        with widgets.errors_shown(status):
            written, over = await visit.ask(
                ("log", id), lambda service: visit.tails.read(service.jobs, id), age=EVERY
            )
            shown.set_text(written)
            status.set_text("" if written else "The job has written nothing yet.")

    await look()
    return look


_AREAS = ("job",)
_AT_ONCE = 200
_SHOWN_IN_TIME = 40
_CANCEL, _SURE = "Cancel this job", "Press again to cancel it"


def columns(now: float) -> tuple[Column, ...]:
    return (
        Column("Job", lambda record: record.name, kind="link"),
        Column("Id", lambda record: record.id),
        Column("Tenant", lambda record: record.tenant),
        Column("State", lambda record: record.state.value, kind="state"),
        Column("Why", why),
        Column("Age", lambda record: max(0.0, now - record.created), format_duration),
        Column("Ran", lambda record: ran_for(record, now) or None, format_duration),
        Column("Starts in", lambda record: starts(record, now)),
        Column("Where", where),
        Column("Done", lambda record: record.done or None, "{:.4g}".format),
        Column("Spent", lambda record: record.run.spent or None, format_money),
    )


async def draw(visit: Visit, parameters: Parameters) -> None:
    after = parameters.get("after") or None
    clock = visit.backend.clock

    def draw_jobs(jobs: Page[JobRecord]) -> Callable[[Page[JobRecord]], None]:
        values = widgets.tiles(figures(jobs.items))
        widgets.heading("Over time")
        widgets.text(
            "p", f"The newest {_SHOWN_IN_TIME}: waiting, then running (all runs of an ended job as one)."
        )
        chart = Chart(
            "Jobs over time; the table below has the numbers",
            timeline(jobs.items[:_SHOWN_IN_TIME], clock.now()),
        )
        widgets.heading("Queue and history")
        table = Table("Jobs", columns(clock.now()), jobs.items, link_to=lambda record: f"/jobs/{record.id}")
        if jobs.next is not None:
            widgets.link("Older jobs", f"/jobs?{urlencode({'after': jobs.next})}")

        def show(jobs: Page[JobRecord]) -> None:
            for value, (_, count) in zip(values, figures(jobs.items), strict=True):
                value.set_text(count)
            chart.show(timeline(jobs.items[:_SHOWN_IN_TIME], clock.now()))
            table.show(jobs.items, columns(clock.now()))

        return show

    await widgets.live(
        visit,
        ("jobs", after),
        lambda service: service.jobs.page(_AT_ONCE, after=after),
        draw_jobs,
        lambda jobs: jobs.items,
        (
            "No jobs yet. Submit one, or fill the store with a small run:",
            ("trimtab submit job.yaml", "trimtab demo"),
        ),
        _AREAS,
    )


def figures(records: tuple[JobRecord, ...]) -> tuple[tuple[str, str], ...]:
    kinds = (
        ("waiting", (JobState.WAITING,)),
        ("running", (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)),
        ("ended", (JobState.ENDED,)),
        ("failed", (JobState.FAILED, JobState.REFUSED)),
        ("cancelled", (JobState.CANCELLED,)),
    )
    return tuple((name, str(sum(record.state in states for record in records))) for name, states in kinds)


def why(record: JobRecord) -> str:
    waits = record.state is JobState.WAITING
    return (
        (record.outlook.why if waits else "") or record.run.reason or ("not considered yet" if waits else "")
    )


def starts(record: JobRecord, now: float) -> str:
    """Time until a waiting job is expected to start, with the interval."""
    outlook = record.outlook
    if record.state is not JobState.WAITING:
        return ""
    if outlook.start is None:
        return "not known"
    ends = [format_duration(max(0.0, end - now)) for end in (outlook.low, outlook.high) if end is not None]
    span = f" ({' to '.join(ends)})" if len(ends) == 2 else ""
    return f"{format_duration(max(0.0, outlook.start - now))}{span}"


def ran_for(record: JobRecord, now: float) -> float:
    """Seconds of all runs."""
    run = record.run
    going = run.since is not None and not record.state.final and record.state is not JobState.WAITING
    return run.seconds + (max(0.0, now - run.since) if going and run.since is not None else 0.0)


def where(record: JobRecord) -> str:
    """Workers and nodes of the present run."""
    if record.state not in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING):
        return ""
    return ", ".join(f"{part.workers} on {part.node}" for part in record.run.parts)


async def draw_one(visit: Visit, parameters: Parameters) -> None:
    id = parameters["id"]

    async def current() -> JobRecord:
        return await visit.ask(("job", id), lambda service: service.jobs.get(id), _AREAS, age=1.0)

    record = await current()
    widgets.link("All jobs", "/jobs")
    widgets.text("h2", f"{record.name} ({record.id})")
    facts, decision_link = widgets.element("div"), widgets.element("p")
    may_cancel = visit.principal.may("jobs", "write", Role.USER)
    buttons = _cancel_button(visit, record.id)
    decision = ""

    def show(record: JobRecord) -> None:
        nonlocal decision
        facts.clear()
        with facts:
            _facts(record, visit.backend.clock.now())
        buttons.set_visibility(may_cancel and not record.state.final)
        if record.run.decision != decision:
            decision = record.run.decision
            decision_link.clear()
            with decision_link:
                widgets.link("Why it was started so: the decision", f"/decisions/{decision}")

    show(record)
    widgets.heading("Log")
    read_on = await show_log(visit, record.id)

    async def again() -> None:
        show(await current())
        await read_on()

    widgets.follow(visit, _AREAS, again, age=EVERY)


def _cancel_button(visit: Visit, id: str) -> Element:
    """A button that cancels the job when it is pressed twice."""
    with widgets.element("div", "row-of-buttons") as buttons:
        cancel = widgets.button(_CANCEL)
    status = widgets.notice()

    async def pressed() -> None:
        if cancel.text == _CANCEL:
            cancel.set_text(_SURE)
            return
        cancel.set_text(_CANCEL)
        with widgets.errors_shown(status):
            after = await visit.do(lambda service: service.jobs.cancel(id))
            ended = after.state is JobState.CANCELLED
            status.set_text("The job is cancelled." if ended else "The job runs; the scheduler stops it.")

    cancel.on("click", pressed)
    return buttons


def _facts(record: JobRecord, now: float) -> None:
    run, work = record.run, record.spec.get("job", {}).get("workload", {})
    with widgets.element("p"):
        state = record.state.value
        widgets.text("span", state, "state", {"data-state": state, "role": "status"})
    ran = ran_for(record, now)
    widgets.facts(
        (
            ("why", why(record)),
            ("starts in", starts(record, now)),
            ("tenant", record.tenant),
            ("command", " ".join(map(str, work.get("command", ())))),
            ("submitted", moment(record.created)),
            ("run since", moment(run.since) if run.since else ""),
            ("ended", moment(run.ended)),
            ("ran", format_duration(ran) if ran else ""),
            ("where", where(record) or run.group),
            ("engine", run.engine),
            ("attempt", str(run.attempt) if run.attempt else ""),
            ("restarts, failures", f"{run.restarts}, {run.failures}" if run.attempt else ""),
            ("done", f"{record.done:.4g}" if record.done else ""),
            ("spent", format_money(run.spent) if run.spent else ""),
        )
    )


PAGE = DashboardPage("Jobs", "/jobs", "view_list", "j", "jobs", draw, below=(("/jobs/{id}", draw_one),))
