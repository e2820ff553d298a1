"""HTML reports: the frame, its style, tables, and charts that carry their library and have a name."""

from collections.abc import Collection, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
small { opacity: .7; } tr.first { background: var(--soft); }
.chart { background: #fff; border-radius: 6px; margin: 0; } .chart noscript { color: #000; padding: 1rem; }
"""


def page(title: str, heading: str, body: str) -> str:
    """A complete page; `title` and `heading` are plain text, `body` is HTML."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<noscript><style>.plotly-graph-div {{ display: none; }}</style></noscript></head><body>"
        f"<h1>{escape(heading)}</h1>{body}</body></html>"
    )


def chart(figure: "go.Figure", name: str, first: bool) -> str:
    """A figure's part of the page; the first one carries the library, so that the page works offline."""
    drawn = figure.to_html(full_html=False, include_plotlyjs=first, config={"displaylogo": False})
    without = "<noscript>This chart needs JavaScript; the table has its numbers.</noscript>"
    return f'<figure class="chart" aria-label="{escape(name)}">{drawn}{without}</figure>'


Cell = str | tuple[str, str]
"""A cell as plain text; of two texts, the second is in small print below the first."""


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Collection[int] = (),
    best_first: bool = False,
) -> str:
    """Rows under their heads; columns in `numbers` are aligned right, and the best row can stand out."""
    kinds = [" class=number" if place in numbers else "" for place in range(len(heads))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(heads, kinds, strict=True)
    )
    body = ""
    for rank, row in enumerate(rows):
        cells = "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        body += f"<tr{' class=first' if best_first and rank == 0 else ''}>{cells}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    text, small = cell
    return f"{escape(text)}<br><small>{escape(small)}</small>"


def bullets(title: str, items: Sequence[str]) -> str:
    """A heading and its list of plain sentences; nothing if there are none."""
    if not items:
        return ""
    return f"<h2>{escape(title)}</h2><ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
