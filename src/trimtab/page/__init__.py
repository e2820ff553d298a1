"""How does it look? One HTML page that needs nothing else: offline, in the dark, without JavaScript."""

from trimtab.page.html import COLORS, bullets, chart, page

__all__ = ["COLORS", "bullets", "chart", "page"]
