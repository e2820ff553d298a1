"""Parts of pages: text, tables, charts, forms, live updates. Stored data is shown as text only."""

import re
import tempfile
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    TrimtabError,
    format_bytes,
    format_duration,
    format_money,
)
from trimtab.page import COLORS
from trimtab.serve.access import UnknownCallerError
from trimtab.serve.dashboard.visit import FRESH, Visit
from trimtab.serve.operations import Service
from trimtab.serve.problems import problem_of


def element(tag: str, classes: str = "", properties: Mapping[str, str] | None = None) -> Element:
    """An HTML element; used as a context, it holds the elements made within."""
    made = ui.element(tag).classes(classes)
    made.props.update(properties or {})
    return made


def text(
    tag: str, content: str, classes: str = "", properties: Mapping[str, str] | None = None
) -> TextElement:
    made = TextElement(tag=tag, text=content).classes(classes)
    made.props.update(properties or {})
    return made


def heading(content: str) -> None:
    text("h2", content)


def alert(error: TrimtabError) -> None:
    """An error as a paragraph that is read out."""
    text("p", error_words(error), "alert", {"role": "alert"})


def error_words(error: TrimtabError) -> str:
    """An error's sentence for a page: options are named by their words, without the command line's dashes."""
    return without_flags(problem_of(error).detail)


def without_flags(sentence: str) -> str:
    """`sentence` with command-line options written as words: --max-nodes as max nodes."""
    return re.sub(
        r"(?<!\S)(\(?)--([a-z][a-z-]*)", lambda match: match[1] + match[2].replace("-", " "), sentence
    )


@contextmanager
def errors_shown(line: TextElement) -> Iterator[None]:
    """Show an error of the block in `line` instead of raising it."""
    try:
        yield
    except TrimtabError as error:
        line.set_text(error_words(error))


def empty(sentence: str, commands: Sequence[str] = ()) -> Element:
    """Says that there is nothing to show yet, and which commands would change that."""
    with element("div", "empty") as shown:
        text("p", sentence)
        for command in commands:
            text("code", command)
    return shown


def facts(pairs: Sequence[tuple[str, str]]) -> Element:
    """Names and values, side by side; empty values are left out."""
    with element("dl", "facts") as shown:
        for name, value in pairs:
            if value:
                text("dt", name)
                text("dd", value)
    return shown


def bullets(items: Sequence[str]) -> None:
    with element("ul"):
        for item in items:
            text("li", without_flags(item))


def tiles(pairs: Sequence[tuple[str, str]]) -> list[TextElement]:
    """A few figures in large print; returns the elements of their values."""
    values = []
    with element("dl", "tiles"):
        for name, value in pairs:
            with element("div"):
                text("dt", name)
                values.append(text("dd", value))
    return values


def button(content: str, main: bool = False) -> TextElement:
    return text("button", content, "main" if main else "plain", {"type": "button"})


def link(content: str, target: str) -> TextElement:
    return text("a", content, "", {"href": target})


def notice() -> TextElement:
    """An empty line that is read out when its text changes."""
    return text("p", "", "notice", {"role": "status"})


def moment(seconds: float | None) -> str:
    """Seconds since the epoch as a date and time."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s since 1970"  # recorded decisions and profiles may have any time


def quantity(name: str, value: float, unit: str = "") -> str:
    """A measured or estimated value by its name or unit."""
    known = {"time": format_duration, "cost": format_money, "memory": format_bytes}
    by_unit = {"s": format_duration, "$": format_money, "B": format_bytes}
    show = known.get(name) or by_unit.get(unit)
    return show(value) if show else f"{value:.4g}{f' {unit}' if unit else ''}"


def estimate_words(name: str, guess: Estimate) -> str:
    low, high = (quantity(name, value, guess.unit) for value in (guess.low, guess.high))
    return f"{quantity(name, guess.value, guess.unit)} ({low} to {high}, {guess.coverage:.0%})"


def action_words(answer: Answer | Decision) -> str:
    a = answer.action
    if "instance" not in a:
        given = {name: value for name, value in a.items() if value not in (None, "")}
        return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in given.items())
    nodes = f" ×{a['nodes']}" if a.get("nodes", 1) != 1 else ""
    return f"{a.get('cloud')} {a.get('region')} {a['instance']}{nodes}{' spot' if a.get('spot') else ''}"


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
_DETAIL = """<q-td :props="props"><details v-if="props.value"><summary>{{ props.col.label }}</summary>{{
props.value }}</details></q-td>"""
_CELLS = {"link": _LINK, "state": _STATE, "share": _SHARE, "detail": _DETAIL}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, the value of an item in it, and how values are shown.

    With `show` (the text of a value) or `text` (of an item), values are numbers that rows are sorted by.
    `kind` is text, link (to the row's address), state, share (of 1), or detail (opened by a click).
    """

    head: str
    value: Callable[[Any], Any]
    show: Callable[[Any], str] | None = None
    kind: str = "text"
    text: Callable[[Any], str] | None = None

    @property
    def key(self) -> str:
        """Name of the column in rows: its head in lower case, with underscores."""
        return re.sub(r"\W+", "_", self.head.lower()).strip("_") or "rank"

    def cells(self, item: Any) -> dict[str, Any]:
        """The value of an item: as a text, and for numbers also the number to sort by."""
        value = self.value(item)
        if self.text is not None:
            return {self.key: self.text(item), f"{self.key}#": value}
        if self.show is not None:
            return {self.key: "" if value is None else self.show(value), f"{self.key}#": value}
        return {self.key: value}

    def definition(self) -> dict[str, Any]:
        """The column in Quasar's form."""
        plain = {"name": self.key, "label": self.head, "field": self.key, "sortable": self.kind != "detail"}
        if self.show is None and self.text is None:
            return {**plain, "align": "left"}
        sort = f"(a, b, x, y) => (x['{self.key}#'] ?? 0) - (y['{self.key}#'] ?? 0)"
        return {**plain, "align": "right", ":sort": sort}


def table_rows(
    columns: Sequence[Column], items: Sequence[Any], link_to: Callable[[Any], str] | None = None
) -> list[dict[str, Any]]:
    """A row for each item; `link_to` returns the address that its link column leads to."""
    rows = []
    for place, item in enumerate(items):
        row: dict[str, Any] = {"id": place, **({"href": link_to(item)} if link_to else {})}
        for column in columns:
            row |= column.cells(item)
        rows.append(row)
    return rows


class Table:
    """Items in rows, under a name that is read out."""

    def __init__(
        self,
        name: str,
        columns: Sequence[Column],
        items: Sequence[Any],
        filtered: bool = True,
        link_to: Callable[[Any], str] | None = None,
    ) -> None:
        self._columns, self._link_to, self._filtered = columns, link_to, filtered
        rows = table_rows(columns, items, link_to)
        with element("div", "table"):
            if filtered:
                field = ui.input(label=f"Filter {name.lower()}").classes("filter")
                field.props("dense outlined clearable debounce=250")
            self._table = table = ui.table(
                rows=rows,
                columns=[column.definition() for column in columns],
                row_key="id",
                pagination=PAGE if filtered else 0,
            )
        if filtered:
            field.on_value_change(lambda change: table.set_filter(change.value or ""))
        self._table.props("flat dense binary-state-sort wrap-cells table-class=cells")
        self._table.props["aria-label"] = name
        self._page_if_long(rows)
        self._table.add_slot("header-cell", _TABLE_HEAD)
        for column in columns:
            if column.kind in _CELLS:
                self._table.add_slot(f"body-cell-{column.key}", _CELLS[column.kind])

    def show(self, items: Sequence[Any], columns: Sequence[Column] | None = None) -> None:
        """Show other items, with equally named columns if given; sends nothing if all rows are equal."""
        rows = table_rows(columns or self._columns, items, self._link_to)
        if rows != self._table.rows:
            self._page_if_long(rows)
            self._table.rows = rows

    def _page_if_long(self, rows: Sequence[Any]) -> None:
        """Show the buttons of pages once there is a second page."""
        self._table.props["hide-pagination"] = not self._filtered or len(rows) <= PAGE


GRID = "#8884"
Trace = dict[str, Any]


def chart_text(content: str) -> str:
    """Text for a chart, which would interpret tags in it."""
    return escape(content, quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "gridcolor": GRID, "zerolinecolor": GRID, "automargin": True, **more}


def figure(traces: list[Trace], height: int, x: dict[str, Any], y: dict[str, Any], **more: Any) -> Trace:
    """A chart without a background of its own."""
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
        """Show another figure; sends nothing if it is equal."""
        if drawn != self._drawn:
            self._drawn = drawn
            self._shown.update_figure(drawn)


T = TypeVar("T")

_SEND = """async (event) => {
  const file = event.target.files[0];
  if (file) emit({name: file.name, text: file.size < 900000 ? await file.text() : null});
}"""  # a web socket's message is at most a megabyte


def file_field(label: str, take: Callable[[str, object], Awaitable[None]]) -> None:
    """Passes a chosen file's name and content to `take`; the content is None if the file is too large."""

    async def chosen(event: events.GenericEventArguments) -> None:
        await take(str(event.args.get("name", "")), event.args.get("text"))

    with element("p"), element("label", "file"):
        text("span", label)
        field = element("input", "", {"type": "file", "accept": ".json"})
    field.on("change", chosen, js_handler=_SEND)


def read_upload(content: str, name: str, read: Callable[[Path], T]) -> T:
    """Read an uploaded file with a command's own reader; an error names the file by its own name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upload.json"
        path.write_text(content, encoding="utf-8", errors="replace")
        try:
            return read(path)
        except BadInputError as error:
            raise BadInputError(str(error).replace(str(path), f'"{name:.80}"')) from None


EVERY = 1.0
"""Seconds between checks of a page for changes."""


async def live(
    visit: Visit,
    name: Hashable,
    query: Callable[[Service], T],
    draw: Callable[[T], Callable[[T], None]],
    has_content: Callable[[T], object],
    how_to_fill: tuple[str, Sequence[str]],
    areas: tuple[str, ...] = (),
    age: float = FRESH,
) -> None:
    """Draw the result of a query, and show later results as events happen.

    `draw` draws the first result and returns the function that shows a later one. Until the result has
    content, the page says how to fill it: a sentence, and commands.
    """

    async def current() -> T:
        return await visit.ask(name, query, areas, age)

    result = await current()
    if not has_content(result):
        empty(*how_to_fill)

        async def reload_if_filled() -> None:
            if has_content(await current()):
                ui.navigate.reload()

        follow(visit, areas, reload_if_filled, age)
        return
    show = draw(result)

    async def again() -> None:
        show(await current())

    follow(visit, areas, again, age)


def follow(
    visit: Visit, areas: tuple[str, ...], draw: Callable[[], Awaitable[None]], age: float = FRESH
) -> None:
    """Draw again after an event in these areas, and after `age` seconds in any case."""
    clock = visit.backend.clock
    last, drawn = visit.pulse.stamp(visit.principal, areas), clock.monotonic()
    trouble = notice()

    async def look() -> None:
        nonlocal last, drawn
        try:
            stamp = visit.pulse.stamp(visit.principal, areas)
            if stamp == last and clock.monotonic() - drawn < age:
                return
            last, drawn = stamp, clock.monotonic()
            await draw()
            trouble.set_text("")
        except UnknownCallerError:
            ui.navigate.to("/sign-in")
        except TrimtabError as error:
            trouble.set_text(error_words(error))

    ui.timer(EVERY, look, immediate=False)
