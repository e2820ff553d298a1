"""Partition: how to split a model over devices, its graph in stages, and the schedule of one step."""

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from trimtab.core import BadInputError, TrimtabError, format_duration
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Column,
    Rows,
    Table,
    action_words,
    bullets,
    button,
    element,
    empty,
    facts,
    file_field,
    heading,
    link,
    moment,
    notice,
    quantity,
    read_upload,
)
from trimtab.serve.operations import Service, plan_partition
from trimtab.serve.problems import problem_of
from trimtab.store import Role

if TYPE_CHECKING:
    from trimtab.core import Decision
    from trimtab.partition import Explained, Graph, Solution

_MOST_OPERATIONS = 3000
_AT_ONCE = 50
_STAGES = (
    Column("number", "#", "number"),
    Column("layers", "Layers"),
    Column("devices", "Devices"),
    Column("parameters", "Parameters", "number"),
    Column("forward", "Forward", "number"),
    Column("backward", "Backward", "number"),
    Column("busy", "Busy", "share"),
)
_EARLIER = (
    Column("when", "When"),
    Column("subject", "Model", "link"),
    Column("plan", "Plan"),
    Column("time", "Expected step"),
)


@dataclass(slots=True)
class Form:
    """What is asked for, as it was typed."""

    name: str = ""
    graph: object = None
    devices: str = "a100-40:2,t4:4"
    network: str = "10Gbit"
    batch: float | None = 32


@dataclass(frozen=True, slots=True)
class Shown:
    """A plan in words and pictures, and its decision's id."""

    decision: str
    words: "Explained"
    pictures: tuple[str, str]
    assumed: tuple[str, ...]


async def draw(visit: Visit, asked: Asked) -> None:
    """The page."""
    if visit.principal.may("decisions", "write", Role.USER):
        _planning(visit)
    found = await visit.ask("plans", lambda s: s.decisions.page(_AT_ONCE, kind="partition").items)
    heading("Earlier plans")
    if found:
        Table("Earlier plans", _EARLIER, plan_rows(found))
    else:
        empty("No plan yet. Upload a graph file above, or plan for a model in Python:", (_COMMAND,))


_COMMAND = "trimtab partition mymodel.py:build --devices a100-40:2,t4:4 --network 25Gbit"


def _planning(visit: Visit) -> None:
    form, said = Form(), notice()

    async def take(name: str, content: object) -> None:
        form.name, form.graph = name, content
        said.set_text(f'"{name:.80}" is ready.')

    heading("What to split, over what")
    file_field("A graph file (.json, see docs/graph-files.md)", take)
    with element("div", "form"):
        devices = ui.input(label="Devices, like a100-40:2,t4:4", value=form.devices).props("outlined dense")
        network = ui.input(label="Between machines, like 25Gbit", value=form.network).props("outlined dense")
        batch = ui.number(label="Samples of a step", value=form.batch, min=1).props("outlined dense")
    with element("div", "row-of-buttons"):
        plan = button("Plan", main=True)
    result = element("div")

    async def find() -> None:
        form.devices, form.network = (devices.value or "").strip(), (network.value or "").strip()
        form.batch = batch.value
        result.clear()
        said.set_text("Searching all mixes of parallelism…")
        try:
            shown = await visit.do(lambda service: planned(service, form))
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        said.set_text("")
        with result:
            _show(shown)

    plan.on("click", find)


def planned(service: Service, form: Form) -> Shown:
    """The best plan for what is asked, kept as a decision."""
    from trimtab.partition import decision, explained, plan_pictures

    service.principal.require("decisions", "write", Role.USER)
    found, assumed = _searched(form)
    made = service.decisions.record(decision(found, service.backend.clock))
    return Shown(made.id, explained(found), plan_pictures(found), assumed)


def _searched(form: Form) -> "tuple[Solution, tuple[str, ...]]":
    from trimtab.partition import Recipe, SearchSettings, parse_devices

    if form.devices.lower().endswith((".yaml", ".yml")) or not form.devices:
        raise BadInputError("name devices by kind and count, like a100-40:2,t4:4; no file is read here")
    told = parse_devices(form.devices, form.network or None)
    precision = "fp32" if any(device.cores for device in told.devices.devices) else "bf16"
    recipe = Recipe(batch=int(form.batch or 0), precision=precision)
    return plan_partition(graph_of(form), told.devices, recipe, SearchSettings()), told.assumed


def graph_of(form: Form) -> "Graph":
    """The uploaded graph; what is wrong with it is said with the file's own name."""
    from trimtab.partition import read_graph

    if not isinstance(form.graph, str):
        raise BadInputError("upload a graph file first, of at most 900 kB")
    graph = read_upload(form.graph, form.name, read_graph)
    if len(graph) > _MOST_OPERATIONS:
        raise BadInputError(
            f"{len(graph)} operations are too many for a page, which plans up to {_MOST_OPERATIONS}; "
            f"use trimtab partition"
        )
    return graph


def _show(shown: Shown) -> None:
    heading(shown.words.mix)
    link("This decision in the ledger", f"/decisions/{shown.decision}")
    facts(shown.words.figures)
    graph, schedule = shown.pictures
    heading("The graph in its stages")
    _picture(graph, "The model's operations in bands, one for each stage")
    heading("The schedule of one step")
    _picture(schedule, "Forward and backward of every micro-batch on each stage over time")
    heading("Stages")
    Table("Stages", _STAGES, stage_rows(shown.words), filtered=False)
    heading("Why this cut")
    bullets([*shown.words.reasons, *(f"{name}: {told}" for name, told in shown.words.others)])
    if shown.assumed:
        heading("Assumptions")
        bullets(shown.assumed)


def _picture(drawing: str, name: str) -> None:
    """As an image, in which nothing can run."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()}"
    with element("div", "paper", {"tabindex": "0", "role": "region", "aria-label": name}):
        element("img", "", {"src": source, "alt": name})


def stage_rows(words: "Explained") -> Rows:
    """A row for each stage."""
    return [
        {
            "id": str(stage.number),
            "number": str(stage.number),
            "number#": stage.number,
            "layers": stage.layers_in_short(8),
            "devices": stage.devices,
            "parameters": f"{stage.parameters:,.0f}",
            "parameters#": stage.parameters,
            "forward": format_duration(stage.forward),
            "forward#": stage.forward,
            "backward": format_duration(stage.backward),
            "backward#": stage.backward,
            "busy": round(min(1.0, stage.busy), 3),
        }
        for stage in words.stages
    ]


def plan_rows(found: "tuple[Decision, ...]") -> Rows:
    """A row for each plan in the ledger."""
    return [
        {
            "id": made.id,
            "href": f"/decisions/{made.id}",
            "when": moment(made.created),
            "subject": made.subject,
            "plan": str(made.action.get("plan") or action_words(made)),
            "time": quantity("time", made.estimates["time"].value) if "time" in made.estimates else "",
        }
        for made in found
    ]


PAGE = Page("Partition", "/partition", "account_tree", "p", "decisions", draw)
