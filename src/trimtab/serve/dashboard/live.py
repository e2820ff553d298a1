"""Pages that follow what happens: one timer each, which draws anew only where something is new."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from trimtab.core import TrimtabError
from trimtab.serve.access import UnknownCallerError
from trimtab.serve.dashboard.parts import notice
from trimtab.serve.dashboard.visit import FRESH, Visit
from trimtab.serve.problems import problem_of

EVERY = 1.0
"""Seconds between looks of a page at whether something happened."""


def reload_when(visit: Visit, areas: tuple[str, ...], there: Callable[[], Awaitable[Any]]) -> None:
    """Draw the whole page again once there is something to show."""

    async def look() -> None:
        if await there():
            ui.navigate.reload()

    follow(visit, areas, look)


def follow(
    visit: Visit, areas: tuple[str, ...], draw: Callable[[], Awaitable[None]], age: float = FRESH
) -> None:
    """Draw again when something happened in these areas, and after `age` seconds in any case."""
    clock = visit.backend.clock
    seen, drawn = visit.pulse.stamp(visit.principal, areas), clock.monotonic()
    trouble = notice()

    async def look() -> None:
        nonlocal seen, drawn
        try:
            stamp = visit.pulse.stamp(visit.principal, areas)
            if stamp == seen and clock.monotonic() - drawn < age:
                return
            seen, drawn = stamp, clock.monotonic()
            await draw()
            trouble.set_text("")
        except UnknownCallerError:
            ui.navigate.to("/sign-in")
        except TrimtabError as error:
            trouble.set_text(problem_of(error).detail)

    ui.timer(EVERY, look, immediate=False)
