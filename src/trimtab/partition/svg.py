"""Drawings for a page: a few shapes, with text that is shown and never run."""

from collections.abc import Sequence
from html import escape

INK, SOFT = "#1b1e23", "#7a8088"


def drawing(width: float, height: float, name: str, parts: Sequence[str]) -> str:
    """A whole picture that can be scrolled where it is wider than the page."""
    return (
        f'<figure class="chart scroll" aria-label="{escape(name)}">'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(name)}"'
        f' width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' font-family="system-ui, sans-serif" font-size="11">{"".join(parts)}</svg></figure>'
    )


def box(x: float, y: float, width: float, height: float, fill: str, title: str = "", more: str = "") -> str:
    """A rectangle; `title` is shown under the mouse, `more` are attributes of our own."""
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.2f}" height="{height:.1f}" fill="{fill}"'
    return f"{shape}{' ' + more if more else ''}>{_title(title)}</rect>" if title else f"{shape} {more}/>"


def text(x: float, y: float, words: str, color: str = INK, anchor: str = "start", size: int = 11) -> str:
    """Words on a line."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(words)}</text>"
    )


def curve(path: str, color: str, width: float = 1.0, title: str = "", dashed: bool = False) -> str:
    """A line along an SVG path."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    line = f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{width:g}"{dashes}'
    return f"{line}>{_title(title)}</path>"


def shortened(words: str, most: int) -> str:
    """The end of a long name, which says more than its start."""
    return words if len(words) <= most else f"…{words[1 - most :]}"


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""
