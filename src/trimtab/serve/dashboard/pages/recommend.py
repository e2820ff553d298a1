"""Recommend: a profile in, configurations to rent out, with reasons; and the way to launch the job."""

from dataclasses import dataclass, field
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from trimtab.core import BadInputError, Profile, TrimtabError, parse_duration, parse_money
from trimtab.serve.dashboard.file_field import file_field
from trimtab.serve.dashboard.pages.launch import launch_form
from trimtab.serve.dashboard.pages.profile_file import read_profile
from trimtab.serve.dashboard.pages.ranking import show_ranking
from trimtab.serve.dashboard.parts import button, element, empty, heading, notice, text
from trimtab.serve.dashboard.registry import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.words import moment
from trimtab.serve.problems import problem_of
from trimtab.serve.settings import comma_separated as texts
from trimtab.store import Role

_AT_ONCE = 100
_RANKED = 60
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
            "top": _RANKED,
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
