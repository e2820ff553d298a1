"""Recommend: configurations to rent for a profile, with reasons; and a form that launches the job."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from trimtab.core import (
    OBJECTIVES,
    BadInputError,
    Profile,
    format_bytes,
    format_duration,
    format_energy,
    format_money,
    parse_duration,
    parse_money,
)
from trimtab.page import COLORS
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Chart, Column, Table, Trace, axis, chart_text, moment
from trimtab.serve.settings import comma_separated
from trimtab.store import Role

_PROFILES = 100
_ROWS_RANKED = 60
_OBJECTIVES = {name: best.removeprefix("the ") for name, (_, best) in OBJECTIVES.items()}
_SHOWN = (("time", format_duration), ("cost", format_money), ("memory", format_bytes))
Row = dict[str, Any]


def name_of(row: Row) -> str:
    return " ".join(_name_lines(row))


def _name_lines(row: Row) -> tuple[str, str]:
    configuration = row["configuration"]
    offer, nodes = configuration["offer"], configuration["nodes"]
    place = f"{offer['cloud']} {offer['region']}, batch {configuration['batch_size']}"
    return (
        f"{offer['instance']}{f' ×{nodes}' if nodes > 1 else ''}",
        f"{place}{', spot' if configuration['spot'] else ''}",
    )


def _device(row: Row) -> str:
    configuration = row["configuration"]
    offer = configuration["offer"]
    if not offer["accelerator"]:
        return f"{offer['vcpus']:g} vCPUs"
    devices = f"{configuration['nodes'] * max(1, offer['accelerators'])} × {offer['accelerator']}"
    return f"{devices}\n{row['spread']}" if row["spread"] else devices


def _interval(estimate: dict[str, float], show: Any, separator: str = " ") -> str:
    return f"{show(estimate['value'])}{separator}({show(estimate['low'])} to {show(estimate['high'])})"


RANKING = (
    Column("#", lambda row: row["rank"], str),
    Column("Configuration", lambda row: "\n".join(_name_lines(row))),
    Column("Device", _device),
    Column(
        "Time",
        lambda row: row["time"]["value"],
        text=lambda row: _interval(row["time"], format_duration, "\n"),
    ),
    Column(
        "Cost", lambda row: row["cost"]["value"], text=lambda row: _interval(row["cost"], format_money, "\n")
    ),
    Column(
        "Energy",
        lambda row: row["energy"]["value"] if row["energy"] else None,
        text=lambda row: format_energy(row["energy"]["value"]).replace(" ", "\n") if row["energy"] else "",
    ),
    Column(
        "Memory",
        lambda row: row["memory"],
        text=lambda row: f"{format_bytes(row['memory'])}\nof {format_bytes(row['memory_limit'])}",
    ),
    Column("Limited by", lambda row: row["bound"]),
    Column("Evidence", lambda row: row["evidence"]["time"]),
    Column("Why here", lambda row: widgets.without_flags(row["reason"]), kind="detail"),
)


def show_ranking(table: dict[str, Any]) -> None:
    rows = table["rows"]
    first = rows[0]
    widgets.heading(f"Rent {name_of(first)}")
    reason = widgets.without_flags(first["reason"])
    times = f"{_interval(first['time'], format_duration)}, {_interval(first['cost'], format_money)}"
    widgets.text("p", f"{times}. {reason[:1].upper()}{reason[1:]}.")
    widgets.link("This decision in the ledger", f"/decisions/{table['decision']}")
    widgets.heading("Cost against time")
    Chart("Cost against time of the ranked configurations; the table below has the numbers", pareto(rows))
    widgets.heading("Ranking")
    Table("Configurations", RANKING, rows)
    widgets.heading("Why")
    widgets.bullets(explanation(first))
    if table["dropped"]:
        widgets.heading("Left out")
        widgets.bullets(
            [f"{group['count']:,} configurations: {group['reason']}" for group in table["dropped"]]
        )
    if table["notes"]:
        widgets.heading("Notes")
        widgets.bullets(table["notes"])


def explanation(row: Row) -> list[str]:
    """Reasons for the first row: where a step's time goes, and whether rule or model answered."""
    parts = sorted(row["parts"].items(), key=lambda part: -part[1])
    times = ", ".join(
        f"{name.replace('_', ' ')} {format_duration(seconds)}" for name, seconds in parts if seconds > 0
    )
    sides = [
        f"{who}: {', '.join(f'{name} {_interval(side[name], show)}' for name, show in _SHOWN if side[name])}"
        for who, side in (("the rule", row["rule"]), ("the model", row["model"]))
        if any(side[name] for name, _ in _SHOWN)
    ]
    return [
        f"one step takes {format_duration(row['step_seconds'])}: {times}",
        *sides,
        f"time: {row['time_choice']}",
        f"memory: {row['memory_choice']}",
    ]


def pareto(rows: list[Row]) -> Trace:
    """The ranked configurations; a line joins those that no other beats in both time and cost."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row["configuration"]["offer"]["accelerator"] or "CPU", []).append(row)
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": chart_text(kind),
            "x": [row["time"]["value"] / 3600 for row in members],
            "y": [row["cost"]["value"] for row in members],
            "text": [chart_text(f"{row['rank']}. {name_of(row)}") for row in members],
            "customdata": [
                [_interval(row["time"], format_duration), _interval(row["cost"], format_money)]
                for row in members
            ],
            "hovertemplate": "%{text}<br>%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
            "marker": {
                "size": [14 if row["rank"] == 1 else 8 for row in members],
                "color": COLORS[place % len(COLORS)],
            },
        }
        for place, (kind, members) in enumerate(sorted(kinds.items()))
    ]
    efficient = sorted((row["time"]["value"], row["cost"]["value"]) for row in rows if row["efficient"])
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "no other is faster and cheaper",
        "x": [time / 3600 for time, _ in efficient],
        "y": [cost for _, cost in efficient],
        "line": {"shape": "hv", "width": 1, "color": "#8a93a0"},
        "hoverinfo": "skip",
    }
    return widgets.figure(
        [*traces, line], 420, axis("time (hours)", type="log"), axis("cost ($)", type="log")
    )


def launch_form(visit: Visit, profile: Profile) -> None:
    """A form that submits the profiled command as a job, for principals that may."""
    if not visit.principal.may("jobs", "write", Role.USER):
        return
    kept = "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "-" for c in profile.workload.name)
    widgets.heading("Launch it")
    widgets.text("p", "The profiled command becomes a job on the scheduler's engine.")
    with widgets.element("div", "form"):
        name = ui.input(label="Name", value=kept.strip(".-")[:60] or "job").props("outlined dense")
        command = ui.input(label="Command", value=shlex.join(profile.workload.command))
        command.props("outlined dense")
        folder = ui.input(label="Folder it runs in").props("outlined dense")
        gpus = ui.number(label="Accelerators", value=0, min=0, precision=2).props("outlined dense")
    with widgets.element("div", "row-of-buttons"):
        launch = widgets.button("Launch", main=True)
    status, job_link = widgets.notice(), widgets.element("p")

    async def submit() -> None:
        count = float(gpus.value or 0)
        document = {
            "name": name.value or "",
            "command": command.value or "",
            "resources": {"gpus": int(count) if count.is_integer() else count},
            **({"folder": folder.value} if folder.value else {}),
        }
        job_link.clear()
        with widgets.errors_shown(status):
            record = (await visit.do(lambda service: service.jobs.submit([document])))[0]
            status.set_text("The job is submitted.")
            with job_link:
                widgets.link(f"Job {record.name} ({record.id})", f"/jobs/{record.id}")

    launch.on("click", submit)


def read_profile(content: object, name: str) -> Profile:
    """The profile in an uploaded file; an error names the file by its own name."""
    from trimtab.observe import load_profile

    if not isinstance(content, str):
        raise BadInputError(
            f'"{name:.80}" is larger than 900 kB, and not a profile; trimtab profile writes one'
        )
    return widgets.read_upload(content, name, load_profile)


@dataclass(slots=True)
class RecommendForm:
    """The request, as typed; `names` are the profiles to choose from, by id."""

    profile: str = ""
    objective: str = "balanced"
    epochs: float | None = None
    steps: float | None = None
    samples: float | None = None
    nodes: float | None = None
    deadline: str = ""
    budget: str = ""
    clouds: str = ""
    accelerators: str = ""
    parallel: str = ""
    spot: bool = False
    names: dict[str, str] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Arguments of the operation; raises if a field cannot be read."""
        if not self.profile:
            raise BadInputError("choose a profile first, or upload one")
        return {
            "profile": self.profile,
            "epochs": self.epochs,
            "steps": None if self.steps is None else int(self.steps),
            "samples": self.samples,
            "max_nodes": None if self.nodes is None else int(self.nodes),
            "objective": self.objective,
            "deadline": parse_duration(self.deadline.strip()) if self.deadline else None,
            "budget": parse_money(self.budget.strip()) if self.budget else None,
            "clouds": comma_separated(self.clouds or ""),
            "accelerators": comma_separated(self.accelerators or ""),
            "parallel": comma_separated(self.parallel or ""),
            "spot": self.spot,
            "top": _ROWS_RANKED,
        }


async def draw(visit: Visit, parameters: Parameters) -> None:
    profiles = await visit.ask("profiles", lambda service: service.profiles.page(_PROFILES).items)
    form = RecommendForm(names={profile.id: profile_name(profile) for profile in profiles})
    named = parameters.get("profile", "")
    form.profile = named if named in form.names else next(iter(form.names), "")
    if not profiles:
        widgets.empty(
            "No profile yet: a few seconds of the real script show what it needs. Make or upload one:",
            ("trimtab profile -- python train.py", "trimtab demo"),
        )
    if not visit.principal.may("recommendations", "write", Role.USER):
        widgets.text("p", "This token may look, but not ask for a recommendation.")
        return
    status = widgets.notice()
    widgets.heading("The profile")
    chosen = ui.select(form.names, value=form.profile or None, label="Profile").props("outlined dense")
    chosen.on_value_change(lambda change: setattr(form, "profile", change.value or ""))
    _upload_field(visit, form, chosen, status)
    widgets.heading("What you want")
    _fields(form)
    with widgets.element("div", "row-of-buttons"):
        recommend = widgets.button("Recommend", main=True)
    result = widgets.element("div")

    async def find() -> None:
        result.clear()
        status.set_text("Looking at every configuration of the catalog…")
        with widgets.errors_shown(status):
            request = form.request()
            profile = await visit.do(lambda service: service.profiles.get(request["profile"]))
            table = await visit.do(lambda service: service.recommendations.make(**request))
            status.set_text(f"{table['considered']:,} configurations were considered.")
            with result:
                show_ranking(table)
                launch_form(visit, profile)

    recommend.on("click", find)


def profile_name(profile: Profile) -> str:
    return f"{profile.workload.name}, {moment(profile.created)}, {profile.id[:12]}"


def _upload_field(visit: Visit, form: RecommendForm, chosen: ui.select, status: TextElement) -> None:
    async def take(name: str, content: object) -> None:
        with widgets.errors_shown(status):
            profile = read_profile(content, name)
            await visit.do(lambda service: service.profiles.save(profile))
            form.names[profile.id] = profile_name(profile)
            chosen.set_options(form.names, value=profile.id)
            status.set_text(f"The profile of {profile.workload.name} is kept.")

    widgets.file_field("Or upload a profile's file", take)


def _fields(form: RecommendForm) -> None:
    numbers = (
        ("epochs", "Epochs, if not as in the script", 0.0),
        ("steps", "Or steps in all", 1.0),
        ("samples", "Or samples in all", 1.0),
        ("nodes", "Nodes, at most", 1.0),
    )
    texts = (
        ("deadline", "Deadline, like 6h"),
        ("budget", "Budget, like $40"),
        ("clouds", "Clouds, like aws, gcp"),
        ("accelerators", "Accelerators, like A100, T4"),
        ("parallel", "Spread the model by, like fsdp, tensor"),
    )

    def keep(name: str, input: Any) -> None:
        input.on_value_change(lambda change: setattr(form, name, change.value))

    with widgets.element("div", "form"):
        keep(
            "objective",
            ui.select(_OBJECTIVES, value=form.objective, label="Objective").props("outlined dense"),
        )
        for name, label, least in numbers:
            keep(name, ui.number(label=label, min=least).props("outlined dense"))
        for name, label in texts:
            keep(name, ui.input(label=label).props("outlined dense"))
        keep("spot", ui.checkbox("Spot machines too"))


PAGE = DashboardPage("Recommend", "/recommend", "recommend", "r", "profiles", draw)
