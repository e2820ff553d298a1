"""Partition: how to split a model over devices, its graph in stages, and the schedule of one step."""

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from trimtab.core import BadInputError, format_duration
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Column, Table, action_words, moment, quantity
from trimtab.serve.operations import Service, plan_partition
from trimtab.store import Role

if TYPE_CHECKING:
    from trimtab.partition import Explained, Graph

_MOST_OPERATIONS = 3000
_AT_ONCE = 50
STAGES = (
    Column("#", lambda stage: stage.number, str),
    Column("Layers", lambda stage: stage.layers_in_short(8)),
    Column("Devices", lambda stage: stage.devices),
    Column("Parameters", lambda stage: stage.parameters, "{:,.0f}".format),
    Column("Forward", lambda stage: stage.forward, format_duration),
    Column("Backward", lambda stage: stage.backward, format_duration),
    Column("Busy", lambda stage: round(min(1.0, stage.busy), 3), kind="share"),
)
PLANS = (
    Column("When", lambda decision: moment(decision.created)),
    Column("Model", lambda decision: decision.subject, kind="link"),
    Column("Plan", lambda decision: str(decision.action.get("plan") or action_words(decision))),
    Column(
        "Expected step",
        lambda made: quantity("time", made.estimates["time"].value) if "time" in made.estimates else "",
    ),
)


@dataclass(slots=True)
class PlanForm:
    """The request, as typed."""

    name: str = ""
    graph: object = None
    devices: str = "a100-40:2,t4:4"
    network: str = "10Gbit"
    batch: float | None = 32


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan in words and pictures, and the id of its decision."""

    decision: str
    words: "Explained"
    pictures: tuple[str, str]
    assumed: tuple[str, ...]


async def draw(visit: Visit, parameters: Parameters) -> None:
    if visit.principal.may("decisions", "write", Role.USER):
        _plan_form(visit)
    plans = await visit.ask("plans", lambda service: service.decisions.page(_AT_ONCE, kind="partition").items)
    widgets.heading("Earlier plans")
    if plans:
        Table("Earlier plans", PLANS, plans, link_to=lambda decision: f"/decisions/{decision.id}")
    else:
        widgets.empty(
            "No plan yet. Upload a graph file above, or plan for a model in Python: docs/guide/partition.md."
        )


def _plan_form(visit: Visit) -> None:
    form, status = PlanForm(), widgets.notice()

    async def take(name: str, content: object) -> None:
        form.name, form.graph = name, content
        status.set_text(f'"{name:.80}" is ready.')

    widgets.heading("Model and devices")
    widgets.file_field("A graph file (.json, see docs/reference/graph-files.md)", take)
    with widgets.element("div", "form"):
        devices = ui.input(label="Devices, like a100-40:2,t4:4", value=form.devices).props("outlined dense")
        network = ui.input(label="Between machines, like 25Gbit", value=form.network).props("outlined dense")
        batch = ui.number(label="Samples of a step", value=form.batch, min=1).props("outlined dense")
    with widgets.element("div", "row-of-buttons"):
        button = widgets.button("Plan", main=True)
    result = widgets.element("div")

    async def find() -> None:
        form.devices, form.network = (devices.value or "").strip(), (network.value or "").strip()
        form.batch = batch.value
        result.clear()
        status.set_text("Searching all mixes of parallelism…")
        with widgets.errors_shown(status):
            plan = await visit.do(lambda service: planned(service, form))
            status.set_text("")
            with result:
                _show(plan)

    button.on("click", find)


def planned(service: Service, form: PlanForm) -> PlanView:
    """The best plan for a request, recorded as a decision."""
    from trimtab.partition import (
        Recipe,
        SearchSettings,
        decision,
        explained,
        parse_devices,
        plan_pictures,
    )

    service.principal.require("decisions", "write", Role.USER)
    if form.devices.lower().endswith((".yaml", ".yml")) or not form.devices:
        raise BadInputError("name devices by kind and count, like a100-40:2,t4:4; this page reads no file")
    parsed = parse_devices(form.devices, form.network or None)
    precision = "fp32" if any(device.cores for device in parsed.devices.devices) else "bf16"
    recipe = Recipe(batch=int(form.batch or 0), precision=precision)
    found = plan_partition(graph_of(form), parsed.devices, recipe, SearchSettings())
    made = service.decisions.record(decision(found, service.backend.clock))
    return PlanView(made.id, explained(found), plan_pictures(found), parsed.assumed)


def graph_of(form: PlanForm) -> "Graph":
    """The uploaded graph; an error names the file by its own name."""
    from trimtab.partition import read_graph

    if not isinstance(form.graph, str):
        raise BadInputError("upload a graph file first, of at most 900 kB")
    graph = widgets.read_upload(form.graph, form.name, read_graph)
    if len(graph) > _MOST_OPERATIONS:
        raise BadInputError(
            f"{len(graph)} operations are too many for a page, which plans up to {_MOST_OPERATIONS}; "
            f"use the command trimtab partition"
        )
    return graph


def _show(plan: PlanView) -> None:
    words = plan.words
    widgets.heading(words.mix)
    widgets.link("This decision in the ledger", f"/decisions/{plan.decision}")
    widgets.facts(words.figures)
    graph, schedule = plan.pictures
    widgets.heading("The graph in its stages")
    _picture(graph, "The model's operations in bands, one for each stage")
    widgets.heading("The schedule of one step")
    _picture(schedule, "Forward and backward of every micro-batch on each stage over time")
    widgets.heading("Stages")
    Table("Stages", STAGES, words.stages, filtered=False)
    widgets.heading("Why this cut")
    widgets.bullets([*words.reasons, *(f"{name}: {result}" for name, result in words.others)])
    if plan.assumed:
        widgets.heading("Assumptions")
        widgets.bullets(plan.assumed)


def _picture(drawing: str, name: str) -> None:
    """An SVG drawing as an image, in which no script can run."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()}"
    with widgets.element("div", "paper", {"tabindex": "0", "role": "region", "aria-label": name}):
        widgets.element("img", "", {"src": source, "alt": name})


PAGE = DashboardPage("Partition", "/partition", "account_tree", "p", "decisions", draw)
