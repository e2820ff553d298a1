"""From a recommendation to a job: what was profiled, handed in to the scheduler."""

import shlex

from nicegui import ui

from trimtab.core import Profile, TrimtabError
from trimtab.serve.dashboard.parts import button, element, heading, link, notice, text
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.problems import problem_of
from trimtab.store import Role


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
