"""What a page is, and what surrounds it: header, navigation, theme, shortcuts, errors in a sentence."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import ui
from starlette.requests import Request

from trimtab.core import TrimtabError
from trimtab.serve.access import Principal
from trimtab.serve.dashboard.visit import Visit, visit_of
from trimtab.serve.dashboard.widgets import alert, element, text
from trimtab.serve.problems import problem_of
from trimtab.store import Role

Asked = Mapping[str, str]
"""Parts of the address: of its path and of its query."""

Draw = Callable[[Visit, Asked], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Page:
    """One line of the navigation. `key` opens it after g; `below` are further paths and what draws them.

    Who may see it: with the scope `area`:read, at least of a role, and with `fleet` for all tenants.
    """

    title: str
    path: str
    icon: str
    key: str
    area: str
    draw: Draw
    below: tuple[tuple[str, Draw], ...] = ()
    least: Role = Role.VIEWER
    fleet: bool = False

    def allowed(self, principal: Principal) -> bool:
        """Whether somebody may see it."""
        return principal.may(self.area, "read", self.least, self.fleet)


log = logging.getLogger("trimtab.serve")

THEME = "trimtab_theme"
_HEAD = (
    '<link rel="stylesheet" href="/static/dashboard.css"><script defer src="/static/dashboard.js"></script>'
)
_SHORTCUTS = (("/", "go to the filter"), ("t", "change the theme"), ("?", "show this"))
_SLOWEST = 15.0  # s that a page may take to be drawn


def register(pages: Sequence[Page]) -> None:
    """Let NiceGUI know all pages."""
    for page in pages:
        for path, draw in ((page.path, page.draw), *page.below):
            told = ui.page(path, title=f"{page.title} - Trimtab", response_timeout=_SLOWEST)
            told(_shown(pages, page, draw))


def _shown(pages: Sequence[Page], page: Page, draw: Draw) -> Callable[[Request], Awaitable[None]]:
    async def show(request: Request) -> None:
        visit = visit_of(request)
        with _frame(pages, page, visit, request.cookies.get(THEME, "auto")):
            try:
                visit.principal.require(page.area, "read", page.least, page.fleet)
                await draw(visit, {**request.query_params, **request.path_params})
            except TrimtabError as error:
                alert(problem_of(error).detail)
            except Exception:
                id = request.scope.get("trimtab.id", "")
                log.exception("page %s of request %s failed", page.path, id)
                alert(f"This is an error of ours; the log has it as {id}.")

    return show


@contextmanager
def _frame(pages: Sequence[Page], page: Page, visit: Visit, theme: str) -> Iterator[None]:
    ui.add_head_html(_HEAD)
    ui.dark_mode({"dark": True, "light": False}.get(theme))
    who = visit.principal
    # Told to be closed, it is opened by the browser where there is room; else the server would ask and wait.
    with (
        ui.left_drawer(value=False, bordered=True)
        .props("width=200 show-if-above")
        .classes("drawer") as drawer
    ):
        _navigation([each for each in pages if each.allowed(who)], page)
    with ui.header(bordered=True, wrap=False).classes("top"):
        menu = element("button", "menu", {"type": "button", "aria-label": "Navigation"})
        with menu:
            ui.icon("menu").props("aria-hidden=true")
        menu.on("click", drawer.toggle)
        text("a", "Trimtab", "name", {"href": "/"})
        text("span", _tenant(who), "tenant", {"title": f"{who.role.value}; whose things are shown"})
        _buttons(visit)
    _help(pages, who)
    with element("div", "content") as content:
        text("h1", page.title)
        yield
    ui.skip_link(target=content)


def _tenant(who: Principal) -> str:
    return "all tenants" if who.tenants is None else ", ".join(who.tenants)


def _navigation(pages: Sequence[Page], now: Page) -> None:
    with element("nav", "", {"aria-label": "Pages"}), element("ul"):
        for page in pages:
            current = {"aria-current": "page"} if page is now else {}
            with element("li"), element("a", "", {"href": page.path, "data-key": page.key, **current}):
                ui.icon(page.icon).props("aria-hidden=true")
                text("span", page.title)


def _buttons(visit: Visit) -> None:
    for name, icon, label in (("theme", "contrast", "Theme"), ("help", "keyboard", "Shortcuts")):
        told = {"type": "button", "aria-label": label, "title": label, "data-does": name}
        with element("button", "round", told):
            ui.icon(icon).props("aria-hidden=true")
    if visit.signed_in:
        with element("form", "", {"method": "post", "action": "/sign-out"}):
            text("button", "Sign out", "plain", {"type": "submit"})


def _help(pages: Sequence[Page], who: Principal) -> None:
    keys = [(f"g {page.key}", page.title) for page in pages if page.allowed(who)]
    with element("dialog", "help", {"id": "help", "aria-label": "Shortcuts"}):
        text("h2", "Shortcuts")
        with element("dl"):
            for key, what in (*keys, *_SHORTCUTS):
                text("dt", key)
                text("dd", what)
        with element("form", "", {"method": "dialog"}):
            text("button", "Close", "plain", {"type": "submit"})
