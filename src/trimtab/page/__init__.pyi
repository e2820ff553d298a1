from .html import (
    COLORS as COLORS,
    Cell as Cell,
    bullets as bullets,
    chart as chart,
    page as page,
    table as table,
)
