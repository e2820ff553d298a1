"""Tables that can be filtered, sorted and leafed through by mouse and keyboard."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import events, ui

from trimtab.serve.dashboard.parts import element

Rows = list[dict[str, Any]]
PAGE = 25

_HEAD = """<q-th :props="props" scope="col"><button v-if="props.col.sortable" type="button" class="sort">{{
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
        self._shown.add_slot("header-cell", _HEAD)
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
