"""Jobs: who runs, waits and has ended, why, and when; one of them with its log, and its end."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from nicegui.element import Element

from trimtab.core import TrimtabError, format_duration, format_money
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    EVERY,
    Chart,
    Column,
    Rows,
    Table,
    Trace,
    axis,
    button,
    chart_text,
    element,
    empty,
    facts,
    figure,
    follow,
    heading,
    link,
    moment,
    notice,
    reload_when,
    text,
    tiles,
)
from trimtab.serve.problems import problem_of
from trimtab.store import JobRecord, JobState, Page as Listed, Role

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
    traces = [_bars(what, drawn[what]) for what in _SPAN_COLORS if what in drawn]
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
        "marker": {"color": _SPAN_COLORS[what]},
        "text": [f"{what} from {moment(begin)} to {moment(end)}" for _, begin, end in rows],
        "textposition": "none",
        "hovertemplate": "%{y}<br>%{text}<extra></extra>",
    }


def _plotted(seconds: float) -> str:
    """A moment to the millisecond, as a chart wants it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


_NOTHING = "It has written nothing yet."


async def show_log(visit: Visit, id: str) -> Callable[[], Awaitable[None]]:
    """The log's end; what it returns shows what has come since, until no more comes."""
    said = notice()
    shown = text("pre", "", "log", {"tabindex": "0", "aria-label": "Log", "role": "region"})
    over = False

    async def look() -> None:
        nonlocal over
        if over:
            return
        try:
            written, over = await visit.ask(
                ("log", id), lambda service: visit.tails.read(service.jobs, id), age=EVERY
            )
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        shown.set_text(written)
        said.set_text("" if written else _NOTHING)

    await look()
    return look


_AREAS = ("job",)
_AT_ONCE = 200
_SHOWN_IN_TIME = 40
_CANCEL, _SURE = "Cancel this job", "Press again to cancel it"
_COLUMNS = (
    Column("name", "Job", "link"),
    Column("id", "Id"),
    Column("tenant", "Tenant"),
    Column("state", "State", "state"),
    Column("why", "Why"),
    Column("age", "Age", "number"),
    Column("ran", "Ran", "number"),
    Column("starts", "Starts in"),
    Column("where", "Where"),
    Column("done", "Done", "number"),
    Column("spent", "Spent", "number"),
)


async def draw(visit: Visit, asked: Asked) -> None:
    """All jobs, newest first."""
    after = asked.get("after") or None

    async def listed() -> Listed[JobRecord]:
        return await visit.ask(("jobs", after), lambda s: s.jobs.page(_AT_ONCE, after=after), _AREAS)

    found = await listed()
    if not found.items:
        empty(
            "No jobs yet. Hand one in, or fill the store with a small run:",
            ("trimtab submit job.yaml", "trimtab demo"),
        )

        async def some() -> bool:
            return bool((await listed()).items)

        reload_when(visit, _AREAS, some)
        return
    clock = visit.backend.clock
    values = tiles(figures(found.items))
    heading("Over time")
    text(
        "p",
        f"The newest {_SHOWN_IN_TIME}: waiting, then running (runs of one that is over: together).",
    )
    chart = Chart(
        "Jobs over time; the table below has its numbers", timeline(found.items[:_SHOWN_IN_TIME], clock.now())
    )
    heading("Queue and history")
    table = Table("Jobs", _COLUMNS, rows(found.items, clock.now()))
    if found.next is not None:
        link("Older jobs", f"/jobs?{urlencode({'after': found.next})}")

    async def again() -> None:
        found = await listed()
        for value, (_, count) in zip(values, figures(found.items), strict=True):
            value.set_text(count)
        chart.show(timeline(found.items[:_SHOWN_IN_TIME], clock.now()))
        table.show(rows(found.items, clock.now()))

    follow(visit, _AREAS, again)


def figures(records: tuple[JobRecord, ...]) -> tuple[tuple[str, str], ...]:
    """How many are in each state, among those listed."""
    kinds = (
        ("waiting", (JobState.WAITING,)),
        ("running", (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)),
        ("ended", (JobState.ENDED,)),
        ("failed", (JobState.FAILED, JobState.REFUSED)),
        ("cancelled", (JobState.CANCELLED,)),
    )
    return tuple((name, str(sum(record.state in states for record in records))) for name, states in kinds)


def rows(records: tuple[JobRecord, ...], now: float) -> Rows:
    """A row for each job."""
    return [_row(record, now) for record in records]


def _row(record: JobRecord, now: float) -> dict[str, object]:
    run, age, ran = record.run, max(0.0, now - record.created), ran_for(record, now)
    return {
        "id": record.id,
        "href": f"/jobs/{record.id}",
        "name": record.name,
        "tenant": record.tenant,
        "state": record.state.value,
        "why": why(record),
        "age": format_duration(age),
        "age#": age,
        "ran": format_duration(ran) if ran else "",
        "ran#": ran,
        "starts": starts(record, now),
        "where": where(record),
        "done": f"{record.done:.4g}" if record.done else "",
        "done#": record.done,
        "spent": format_money(run.spent) if run.spent else "",
        "spent#": run.spent,
    }


def why(record: JobRecord) -> str:
    """The reason for the state it is in."""
    waits = record.state is JobState.WAITING
    return (
        (record.outlook.why if waits else "") or record.run.reason or ("not looked at yet" if waits else "")
    )


def starts(record: JobRecord, now: float) -> str:
    """In how long a waiting job is believed to start, with the range."""
    outlook = record.outlook
    if record.state is not JobState.WAITING:
        return ""
    if outlook.start is None:
        return "not known"
    ends = [format_duration(max(0.0, each - now)) for each in (outlook.low, outlook.high) if each is not None]
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


async def draw_one(visit: Visit, asked: Asked) -> None:
    """One job."""

    async def found() -> JobRecord:
        return await visit.ask(("job", asked["id"]), lambda s: s.jobs.get(asked["id"]), _AREAS, age=1.0)

    record = await found()
    link("All jobs", "/jobs")
    text("h2", f"{record.name} ({record.id})")
    told, because = element("div"), element("p")
    may = visit.principal.may("jobs", "write", Role.USER)
    buttons = _cancelling(visit, record.id)
    decided = ""

    def show(record: JobRecord) -> None:
        nonlocal decided
        told.clear()
        with told:
            _facts(record, visit.backend.clock.now())
        buttons.set_visibility(may and not record.state.final)
        if record.run.decision != decided:
            decided = record.run.decision
            because.clear()
            with because:
                link("Why it was started so: the decision", f"/decisions/{decided}")

    show(record)
    heading("Log")
    read_on = await show_log(visit, record.id)

    async def again() -> None:
        show(await found())
        await read_on()

    follow(visit, _AREAS, again, age=EVERY)


def _cancelling(visit: Visit, id: str) -> Element:
    """A button that ends the job when it is pressed twice."""
    with element("div", "row-of-buttons") as shown:
        cancel = button(_CANCEL)
    said = notice()

    async def pressed() -> None:
        if cancel.text == _CANCEL:
            cancel.set_text(_SURE)
            return
        cancel.set_text(_CANCEL)
        try:
            after = await visit.do(lambda s: s.jobs.cancel(id))
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        ended = after.state is JobState.CANCELLED
        said.set_text("It is cancelled." if ended else "It runs; the scheduler stops it.")

    cancel.on("click", pressed)
    return shown


def _facts(record: JobRecord, now: float) -> None:
    run, work = record.run, record.spec.get("job", {}).get("workload", {})
    with element("p"):
        text("span", record.state.value, "state", {"data-state": record.state.value, "role": "status"})
    ran = ran_for(record, now)
    facts(
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


PAGE = Page("Jobs", "/jobs", "view_list", "j", "jobs", draw, below=(("/jobs/{id}", draw_one),))
