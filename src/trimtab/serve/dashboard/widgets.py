"""Parts of pages: text, tables, charts, file fields, live updates. Stored data is shown as text only."""

import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, TypeVar

from nicegui import events, ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from trimtab.core import (
    Answer,
    BadInputError,
    Decision,
    Estimate,
    Scalar,
    TrimtabError,
    format_bytes,
    format_duration,
    format_money,
)
from trimtab.page import COLORS
from trimtab.serve.access import UnknownCallerError
from trimtab.serve.dashboard.visit import FRESH, Visit
from trimtab.serve.problems import problem_of


def element(tag: str, classes: str = "", properties: Mapping[str, str] | None = None) -> Element:
    """Something that holds others."""
    made = ui.element(tag).classes(classes)
    for name, value in (properties or {}).items():
        made.props[name] = value
    return made


def text(
    tag: str, content: str, classes: str = "", properties: Mapping[str, str] | None = None
) -> TextElement:
    """A piece of text."""
    made = TextElement(tag=tag, text=content).classes(classes)
    for name, value in (properties or {}).items():
        made.props[name] = value
    return made


def heading(content: str) -> None:
    """Over a part of a page."""
    text("h2", content)


def alert(sentence: str) -> None:
    """What is wrong."""
    text("p", sentence, "alert", {"role": "alert"})


def empty(sentence: str, commands: Sequence[str] = ()) -> Element:
    """That there is nothing to show yet, and how to get something."""
    with element("div", "empty") as shown:
        text("p", sentence)
        for command in commands:
            text("code", command)
    return shown


def facts(pairs: Sequence[tuple[str, str]]) -> Element:
    """Names and values, side by side."""
    with element("dl", "facts") as shown:
        for name, value in pairs:
            if value:
                text("dt", name)
                text("dd", value)
    return shown


def bullets(items: Sequence[str]) -> None:
    """Sentences in a list."""
    with element("ul"):
        for item in items:
            text("li", item)


def tiles(pairs: Sequence[tuple[str, str]]) -> list[TextElement]:
    """A few figures in large print; their values, to be changed later."""
    values = []
    with element("dl", "tiles"):
        for name, value in pairs:
            with element("div"):
                text("dt", name)
                values.append(text("dd", value))
    return values


def button(content: str, main: bool = False) -> TextElement:
    """Something to press."""
    return text("button", content, "main" if main else "plain", {"type": "button"})


def link(content: str, target: str) -> TextElement:
    """A way to a page of ours."""
    return text("a", content, "", {"href": target})


def notice() -> TextElement:
    """An empty line that is read out when it says something."""
    return text("p", "", "notice", {"role": "status"})


def moment(seconds: float | None) -> str:
    """Seconds since the epoch as a date and time."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s since 1970"  # decisions and profiles bring times of their own, and any


def quantity(name: str, value: float, unit: str = "") -> str:
    """A measured or estimated value by its name or unit."""
    known = {"time": format_duration, "cost": format_money, "memory": format_bytes}
    by_unit = {"s": format_duration, "$": format_money, "B": format_bytes}
    show = known.get(name) or by_unit.get(unit)
    return show(value) if show else f"{value:.4g}{f' {unit}' if unit else ''}"


def estimate_words(name: str, guess: Estimate) -> str:
    """A guess with its range and how sure it is."""
    low, high = (quantity(name, value, guess.unit) for value in (guess.low, guess.high))
    return f"{quantity(name, guess.value, guess.unit)} ({low} to {high}, {guess.coverage:.0%})"


def action_words(answer: Answer | Decision) -> str:
    """What somebody would do, on one line."""
    a = answer.action
    if "instance" not in a:
        return ", ".join(f"{name} {_scalar(value)}" for name, value in a.items() if value not in (None, ""))
    nodes = f" ×{a['nodes']}" if a.get("nodes", 1) != 1 else ""
    return f"{a.get('cloud')} {a.get('region')} {a['instance']}{nodes}{' spot' if a.get('spot') else ''}"


def _scalar(value: Scalar) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Rows = list[dict[str, Any]]
PAGE = 25

_TABLE_HEAD = """
<q-th :props="props" scope="col"><button v-if="props.col.sortable" type="button" class="sort">{{
props.col.label }}</button><template v-else>{{ props.col.label }}</template></q-th>"""
_LINK = """<q-td :props="props"><a v-if="props.row.href" :href="props.row.href">{{ props.value }}</a><template
v-else>{{ props.value }}</template></q-td>"""
_STATE = (
    """<q-td :props="props"><span class="state" :data-state="props.value">{{ props.value }}</span></q-td>"""
)
_SHARE = """<q-td :props="props"><span v-if="props.value !== null && props.value !== undefined"><meter min="0"
max="1" :value="props.value" :aria-label="props.col.label"></meter> {{
Math.round(100 * props.value) }} %</span></q-td>"""
_CELLS = {"link": _LINK, "state": _STATE, "share": _SHARE}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the rows' key, its head, and how it is shown: text, number, link (to the row's `href`), …

    The text of a number is under the key, and what it is sorted by under the key with a trailing "#".
    """

    key: str
    head: str
    shown: str = "text"

    def plain(self) -> dict[str, Any]:
        """As Quasar wants it."""
        numeric = self.shown == "number"
        told = {"name": self.key, "label": self.head, "field": self.key, "sortable": True}
        told["align"] = "right" if numeric else "left"
        if numeric:
            told[":sort"] = f"(a, b, x, y) => (x['{self.key}#'] ?? 0) - (y['{self.key}#'] ?? 0)"
        return told


class Table:
    """Rows under a name that is read out; each row has its own `id`."""

    def __init__(self, name: str, columns: Sequence[Column], rows: Rows, filtered: bool = True) -> None:
        with element("div", "table"):
            if filtered:
                field = ui.input(label=f"Filter {name.lower()}").classes("filter")
                field.props("dense outlined clearable debounce=250").on_value_change(self._filter)
            self._shown = ui.table(
                rows=rows,
                columns=[column.plain() for column in columns],
                row_key="id",
                pagination=PAGE if filtered else 0,
            )
        self._shown.props("flat dense binary-state-sort wrap-cells table-class=cells")
        self._shown.props["aria-label"] = name
        self._filtered = filtered
        self._page_if_long(rows)
        self._shown.add_slot("header-cell", _TABLE_HEAD)
        for column in columns:
            if column.shown in _CELLS:
                self._shown.add_slot(f"body-cell-{column.key}", _CELLS[column.shown])

    def _filter(self, told: events.ValueChangeEventArguments[Any]) -> None:
        self._shown.set_filter(told.value or "")

    def show(self, rows: Rows) -> None:
        """Other rows, where they are other."""
        if rows != self._shown.rows:
            self._page_if_long(rows)
            self._shown.rows = rows

    def _page_if_long(self, rows: Rows) -> None:
        """Buttons to leaf through it are there once there is a second page."""
        self._shown.props["hide-pagination"] = not self._filtered or len(rows) <= PAGE


GRID = "#8884"
Trace = dict[str, Any]


def chart_text(content: str) -> str:
    """Text for a chart, which would take tags in it for its own."""
    return escape(content, quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, "gridcolor": GRID, "zerolinecolor": GRID, "automargin": True, **more}


def figure(traces: list[Trace], height: int, x: dict[str, Any], y: dict[str, Any], **more: Any) -> Trace:
    """A whole chart; its paper is the page's own."""
    layout = {
        "height": height,
        "margin": {"t": 10, "r": 10, "b": 40, "l": 50},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": list(COLORS),
        "legend": {"orientation": "h", "y": -0.3},
        "hoverlabel": {"bgcolor": "#222", "font": {"color": "#fff"}},
        "xaxis": x,
        "yaxis": y,
        **more,
    }
    return {
        "data": traces,
        "layout": layout,
        "config": {"displayModeBar": False, "displaylogo": False, "responsive": True},
    }


class Chart:
    """A chart under a name that is read out instead of it."""

    def __init__(self, name: str, drawn: Trace) -> None:
        with element("figure", "chart", {"role": "img", "aria-label": name}):
            self._shown = ui.plotly(drawn).classes("drawn")
        self._drawn = drawn

    def show(self, drawn: Trace) -> None:
        """Another figure, where it is another."""
        if drawn != self._drawn:
            self._drawn = drawn
            self._shown.update_figure(drawn)


T = TypeVar("T")

_SEND = """async (event) => {
  const file = event.target.files[0];
  if (file) emit({name: file.name, text: file.size < 900000 ? await file.text() : null});
}"""  # a web socket's message is at most a megabyte


def file_field(label: str, take: Callable[[str, object], Awaitable[None]]) -> None:
    """Gives a chosen file's name and content to `take`; the content is None where the file is too large."""

    async def chosen(told: events.GenericEventArguments) -> None:
        await take(str(told.args.get("name", "")), told.args.get("text"))

    with element("p"), element("label", "file"):
        text("span", label)
        field = element("input", "", {"type": "file", "accept": ".json"})
    field.on("change", chosen, js_handler=_SEND)


def read_upload(content: str, name: str, read: Callable[[Path], T]) -> T:
    """What the commands' own reader makes of it; what is wrong is said with the file's own name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upload.json"
        path.write_text(content, encoding="utf-8", errors="replace")
        try:
            return read(path)
        except BadInputError as error:
            raise BadInputError(str(error).replace(str(path), f'"{name:.80}"')) from None


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
