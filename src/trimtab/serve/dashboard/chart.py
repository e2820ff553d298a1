"""Charts that follow the theme, have a name, and whose numbers are in a table beside them."""

from html import escape
from typing import Any

from nicegui import ui

from trimtab.page import COLORS
from trimtab.serve.dashboard.parts import element

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
