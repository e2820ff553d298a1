"""Recommend: a profile in, configurations to rent out, with reasons; and the way to launch the job."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from trimtab.core import (
    BadInputError,
    Profile,
    TrimtabError,
    format_bytes,
    format_duration,
    format_money,
    parse_duration,
    parse_money,
)
from trimtab.page import COLORS
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Chart,
    Column,
    Rows,
    Table,
    Trace,
    axis,
    bullets,
    button,
    chart_text,
    element,
    empty,
    figure,
    file_field,
    heading,
    link,
    moment,
    notice,
    read_upload,
    text,
)
from trimtab.serve.problems import problem_of
from trimtab.serve.settings import comma_separated as texts
from trimtab.store import Role

_RANKING = (
    Column("rank", "#", "number"),
    Column("id", "Configuration"),
    Column("device", "Device"),
    Column("time", "Time", "number"),
    Column("cost", "Cost", "number"),
    Column("memory", "Memory", "number"),
    Column("bound", "Limited by"),
    Column("by", "Evidence"),
    Column("why", "Why here"),
)
Row = dict[str, Any]


def show_ranking(table: dict[str, Any]) -> None:
    """All of it."""
    rows = table["rows"]
    first = rows[0]
    heading(f"Rent {key_of(first)}")
    takes, costs = _span(first["time"], format_duration), _span(first["cost"], format_money)
    text("p", f"{takes}, {costs}. {_sentence(first['reason'])}")
    link("This decision in the ledger", f"/decisions/{table['decision']}")
    heading("Cost against time")
    Chart("Cost against time of the ranked configurations; the table below has the numbers", pareto(rows))
    heading("Ranking")
    Table("Configurations", _RANKING, ranking_rows(rows))
    heading("Why")
    bullets(explanation(first))
    if table["dropped"]:
        heading("Left out")
        bullets([f"{each['count']:,} configurations: {each['reason']}" for each in table["dropped"]])
    if table["notes"]:
        heading("Notes")
        bullets(table["notes"])


def key_of(row: Row) -> str:
    """A configuration's name."""
    configuration = row["configuration"]
    offer = configuration["offer"]
    spot = " spot" if configuration["spot"] else ""
    name = f"{offer['cloud']}/{offer['region']}/{offer['instance']}"
    return f"{name} x{configuration['nodes']} b{configuration['batch_size']}{spot}"


def ranking_rows(rows: list[Row]) -> Rows:
    """For the table."""
    return [
        {
            "id": key_of(row),
            "rank": str(row["rank"]),
            "rank#": row["rank"],
            "device": _device(row),
            "time": _span(row["time"], format_duration),
            "time#": row["time"]["value"],
            "cost": _span(row["cost"], format_money),
            "cost#": row["cost"]["value"],
            "memory": f"{format_bytes(row['memory'])} of {format_bytes(row['memory_limit'])}",
            "memory#": row["memory"],
            "bound": row["bound"],
            "by": row["evidence"]["time"],
            "why": row["reason"],
        }
        for row in rows
    ]


def explanation(row: Row) -> list[str]:
    """Why the first row is the first: where a step's time goes, and who of rule and model was believed."""
    parts = sorted(row["parts"].items(), key=lambda part: -part[1])
    told = ", ".join(
        f"{name.replace('_', ' ')} {format_duration(seconds)}" for name, seconds in parts if seconds > 0
    )
    sides = [
        f"{who}: {', '.join(f'{name} {_span(side[name], show)}' for name, show in _SHOWN if side[name])}"
        for who, side in (("the rule", row["rule"]), ("the model", row["model"]))
        if any(side[name] for name, _ in _SHOWN)
    ]
    return [
        f"one step takes {format_duration(row['step_seconds'])}: {told}",
        *sides,
        f"time: {row['time_choice']}",
        f"memory: {row['memory_choice']}",
    ]


_SHOWN = (("time", format_duration), ("cost", format_money), ("memory", format_bytes))


def pareto(rows: list[Row]) -> Trace:
    """The ranked configurations; those that nothing beats in both are joined."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row["configuration"]["offer"]["accelerator"] or "CPU", []).append(row)
    traces = [
        _points(kind, members, COLORS[place % len(COLORS)])
        for place, (kind, members) in enumerate(sorted(kinds.items()))
    ]
    efficient = sorted((row["time"]["value"], row["cost"]["value"]) for row in rows if row["efficient"])
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "nothing is faster and cheaper",
        "x": [time / 3600 for time, _ in efficient],
        "y": [cost for _, cost in efficient],
        "line": {"shape": "hv", "width": 1, "color": "#8a93a0"},
        "hoverinfo": "skip",
    }
    return figure([*traces, line], 420, axis("time (hours)", type="log"), axis("cost ($)", type="log"))


def _points(kind: str, rows: list[Row], color: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": chart_text(kind),
        "x": [row["time"]["value"] / 3600 for row in rows],
        "y": [row["cost"]["value"] for row in rows],
        "text": [chart_text(f"{row['rank']}. {key_of(row)}") for row in rows],
        "customdata": [
            [chart_text(_span(row["time"], format_duration)), _span(row["cost"], format_money)]
            for row in rows
        ],
        "hovertemplate": "%{text}<br>%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        "marker": {"size": [14 if row["rank"] == 1 else 8 for row in rows], "color": color},
    }


def _span(guess: dict[str, float], show: Any) -> str:
    return f"{show(guess['value'])} ({show(guess['low'])} to {show(guess['high'])})"


def _device(row: Row) -> str:
    configuration = row["configuration"]
    offer = configuration["offer"]
    if not offer["accelerator"]:
        return f"{offer['vcpus']:g} vCPUs"
    return f"{configuration['nodes'] * max(1, offer['accelerators'])} × {offer['accelerator']}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def launch_form(visit: Visit, profile: Profile) -> None:
    """A form that hands the profiled command in; for who may."""
    if not visit.principal.may("jobs", "write", Role.USER):
        return
    heading("Launch it")
    text("p", "The command that was profiled becomes a job on the engine that trimtab up drives.")
    with element("div", "form"):
        name = ui.input(label="Name", value=job_name(profile.workload.name)).props("outlined dense")
        command = ui.input(label="Command", value=shlex.join(profile.workload.command)).props(
            "outlined dense"
        )
        folder = ui.input(label="Folder it runs in").props("outlined dense")
        gpus = ui.number(label="Accelerators", value=0, min=0, precision=2).props("outlined dense")
    with element("div", "row-of-buttons"):
        launch = button("Launch", main=True)
    said, made = notice(), element("p")

    async def submit() -> None:
        document = {
            "name": name.value or "",
            "command": command.value or "",
            "resources": {"gpus": _whole(gpus.value or 0)},
            **({"folder": folder.value} if folder.value else {}),
        }
        made.clear()
        try:
            record = (await visit.do(lambda s: s.jobs.submit([document])))[0]
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        said.set_text("It is handed in.")
        with made:
            link(f"Job {record.name} ({record.id})", f"/jobs/{record.id}")

    launch.on("click", submit)


def job_name(name: str) -> str:
    """A workload's name as a job may be called."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "-" for c in name).strip(".-")
    return kept[:60] or "job"


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) else number


def read_profile(content: object, name: str) -> Profile:
    """The profile in a file's content; what is wrong with it is said with the file's own name."""
    from trimtab.observe import load_profile

    if not isinstance(content, str):
        raise BadInputError(
            f'"{name:.80}" is larger than 900 kB, and no profile; it is kept by trimtab profile'
        )
    return read_upload(content, name, load_profile)


_AT_ONCE = 100
_ROWS_RANKED = 60
_OBJECTIVES = {"balanced": "least time times cost", "cost": "cheapest", "time": "fastest"}


@dataclass(slots=True)
class Form:
    """What somebody has typed; text as it was typed."""

    profile: str = ""
    objective: str = "balanced"
    epochs: float | None = None
    deadline: str = ""
    budget: str = ""
    clouds: str = ""
    accelerators: str = ""
    spot: bool = False
    names: dict[str, str] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Arguments of the operation; raises where a field cannot be read."""
        if not self.profile:
            raise BadInputError("choose a profile first, or upload one")
        return {
            "profile": self.profile,
            "epochs": self.epochs,
            "objective": self.objective,
            "deadline": parse_duration(self.deadline) if self.deadline else None,
            "budget": parse_money(self.budget) if self.budget else None,
            "clouds": texts(self.clouds),
            "accelerators": texts(self.accelerators),
            "spot": self.spot,
            "top": _ROWS_RANKED,
        }


async def draw(visit: Visit, asked: Asked) -> None:
    """The page."""
    may = visit.principal.may("recommendations", "write", Role.USER)
    found = await visit.ask("profiles", lambda s: s.profiles.page(_AT_ONCE).items)
    form = Form(names={each.id: profile_name(each) for each in found})
    form.profile = (
        asked.get("profile", "") if asked.get("profile") in form.names else next(iter(form.names), "")
    )
    if not found:
        empty(
            "No profile yet: a few seconds of the real script show what it needs. Make or upload one:",
            ("trimtab profile -- python train.py", "trimtab demo"),
        )
    if not may:
        text("p", "This token may look, and make no recommendation.")
        return
    said = notice()
    chosen = _chooser(form)
    _uploading(visit, form, chosen, said)
    heading("What you want")
    _fields(form)
    with element("div", "row-of-buttons"):
        ask = button("Recommend", main=True)
    result = element("div")

    async def recommend() -> None:
        result.clear()
        said.set_text("Looking at every configuration of the catalog…")
        try:
            table, profile = await _made(visit, form.request())
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        said.set_text(f"{table['considered']:,} configurations were considered.")
        with result:
            show_ranking(table)
            launch_form(visit, profile)

    ask.on("click", recommend)


async def _made(visit: Visit, request: dict[str, Any]) -> tuple[dict[str, Any], Profile]:
    profile = await visit.do(lambda s: s.profiles.get(request["profile"]))
    table = await visit.do(lambda s: s.recommendations.make(**request))
    return table, profile


def profile_name(profile: Profile) -> str:
    """For a list of them."""
    return f"{profile.workload.name}, {moment(profile.created)}, {profile.id[:12]}"


def _chooser(form: Form) -> ui.select:
    heading("The profile")
    chosen = ui.select(form.names, value=form.profile or None, label="Profile").props("outlined dense")
    chosen.on_value_change(lambda told: setattr(form, "profile", told.value or ""))
    return chosen


def _uploading(visit: Visit, form: Form, chosen: ui.select, said: TextElement) -> None:
    async def take(name: str, content: object) -> None:
        try:
            profile = read_profile(content, name)
            await visit.do(lambda s: s.profiles.save(profile))
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        form.names[profile.id] = profile_name(profile)
        chosen.set_options(form.names, value=profile.id)
        said.set_text(f"The profile of {profile.workload.name} is kept.")

    file_field("Or upload a profile's file", take)


def _fields(form: Form) -> None:
    with element("div", "form"):
        objective = ui.select(_OBJECTIVES, value=form.objective, label="Objective").props("outlined dense")
        objective.on_value_change(lambda told: setattr(form, "objective", told.value))
        epochs = ui.number(label="Epochs, if not as in the script", min=0).props("outlined dense")
        epochs.on_value_change(lambda told: setattr(form, "epochs", told.value))
        _text_field(form, "deadline", "Deadline, like 6h")
        _text_field(form, "budget", "Budget, like $40")
        _text_field(form, "clouds", "Clouds, like aws, gcp")
        _text_field(form, "accelerators", "Accelerators, like A100, T4")
        spot = ui.checkbox("Spot machines too")
        spot.on_value_change(lambda told: setattr(form, "spot", told.value))


def _text_field(form: Form, name: str, label: str) -> None:
    shown = ui.input(label=label).props("outlined dense")
    shown.on_value_change(lambda told: setattr(form, name, (told.value or "").strip()))


PAGE = Page("Recommend", "/recommend", "recommend", "r", "profiles", draw)
