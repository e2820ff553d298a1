"""The declaration of a page, and its frame: header, navigation, theme, shortcuts, errors."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import ui
from starlette.requests import Request

from trimtab.core import TrimtabError
from trimtab.serve.access import Principal
from trimtab.serve.dashboard.visit import KEY, Visit
from trimtab.serve.dashboard.widgets import alert, element, text
from trimtab.store import Role

Parameters = Mapping[str, str]
"""Parameters of a page's path and query."""

Draw = Callable[[Visit, Parameters], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DashboardPage:
    """A page of the navigation. `key` opens it after g; `below` are further paths and their functions.

    To see it, a token needs the scope `area`:read, the role `least`, and with `fleet` all tenants.
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
        return principal.may(self.area, "read", self.least, self.fleet)


log = logging.getLogger("trimtab.serve")

THEME = "trimtab_theme"
_HEAD = (
    '<link rel="stylesheet" href="/static/dashboard.css"><script defer src="/static/dashboard.js"></script>'
)
_SHORTCUTS = (("/", "go to the filter"), ("t", "change the theme"), ("?", "show this"))
_SLOWEST = 15.0  # s that a page may take to be drawn


def register(pages: Sequence[DashboardPage]) -> None:
    for page in pages:
        for path, draw in ((page.path, page.draw), *page.below):
            decorate = ui.page(path, title=f"{page.title} - Trimtab", response_timeout=_SLOWEST)
            decorate(_handler(pages, page, draw))


def _handler(
    pages: Sequence[DashboardPage], page: DashboardPage, draw: Draw
) -> Callable[[Request], Awaitable[None]]:
    async def show(request: Request) -> None:
        visit: Visit = request.scope[KEY]
        with _frame(pages, page, visit, request.cookies.get(THEME, "auto")):
            try:
                visit.principal.require(page.area, "read", page.least, page.fleet)
                await draw(visit, {**request.query_params, **request.path_params})
            except TrimtabError as error:
                alert(error)
            except Exception:
                id = request.scope.get("trimtab.id", "")
                log.exception("page %s of request %s failed", page.path, id)
                alert(TrimtabError(f"This is a bug; the log has it as {id}."))

    return show


@contextmanager
def _frame(pages: Sequence[DashboardPage], page: DashboardPage, visit: Visit, theme: str) -> Iterator[None]:
    ui.add_head_html(_HEAD)
    ui.dark_mode({"dark": True, "light": False}.get(theme))
    who = visit.principal
    allowed = [known for known in pages if known.allowed(who)]
    # Declared as closed, it is opened by the browser if there is room; else the server would ask and wait.
    drawer = ui.left_drawer(value=False, bordered=True).props("width=200 show-if-above").classes("drawer")
    with drawer, element("nav", "", {"aria-label": "Pages"}), element("ul"):
        for known in allowed:
            current = {"aria-current": "page"} if known is page else {}
            with element("li"), element("a", "", {"href": known.path, "data-key": known.key, **current}):
                ui.icon(known.icon).props("aria-hidden=true")
                text("span", known.title)
    with ui.header(bordered=True, wrap=False).classes("top"):
        menu = element("button", "menu", {"type": "button", "aria-label": "Navigation"})
        with menu:
            ui.icon("menu").props("aria-hidden=true")
        menu.on("click", drawer.toggle)
        text("a", "Trimtab", "name", {"href": "/"})
        tenants = "all tenants" if who.tenants is None else ", ".join(who.tenants)
        text("span", tenants, "tenant", {"title": f"Role {who.role.value}; tenants that are shown"})
        for name, icon, label in (("theme", "contrast", "Theme"), ("help", "keyboard", "Shortcuts")):
            properties = {"type": "button", "aria-label": label, "title": label, "data-does": name}
            with element("button", "round", properties):
                ui.icon(icon).props("aria-hidden=true")
        if visit.signed_in:
            with element("form", "", {"method": "post", "action": "/sign-out"}):
                text("button", "Sign out", "plain", {"type": "submit"})
    with element("dialog", "help", {"id": "help", "aria-label": "Shortcuts"}):
        text("h2", "Shortcuts")
        with element("dl"):
            for key, effect in (*((f"g {known.key}", known.title) for known in allowed), *_SHORTCUTS):
                text("dt", key)
                text("dd", effect)
        with element("form", "", {"method": "dialog"}):
            text("button", "Close", "plain", {"type": "submit"})
    with element("div", "content") as content:
        text("h1", page.title)
        yield
    ui.skip_link(target=content)
