"""Jobs: who runs, waits and has ended, why, and when; one of them with its log, and its end."""

from urllib.parse import urlencode

from nicegui.element import Element

from trimtab.core import TrimtabError, format_duration, format_money
from trimtab.serve.dashboard.chart import Chart
from trimtab.serve.dashboard.live import EVERY, follow, reload_when
from trimtab.serve.dashboard.pages.job_chart import timeline
from trimtab.serve.dashboard.pages.job_log import show_log
from trimtab.serve.dashboard.parts import button, element, empty, facts, heading, link, notice, text, tiles
from trimtab.serve.dashboard.registry import Asked, Page
from trimtab.serve.dashboard.table import Column, Rows, Table
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.words import moment
from trimtab.serve.problems import problem_of
from trimtab.store import JobRecord, JobState, Page as Listed, Role

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
        for value, (_, figure) in zip(values, figures(found.items), strict=True):
            value.set_text(figure)
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
