"""How does it look? One HTML page that needs nothing else: offline, in the dark, without JavaScript."""

from trimtab.page.html import COLORS, Cell, bullets, chart, page, table

__all__ = ["COLORS", "Cell", "bullets", "chart", "page", "table"]
