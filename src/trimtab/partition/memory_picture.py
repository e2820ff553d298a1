"""Memory of the devices as a picture: what takes it, and what stays free."""

from collections.abc import Sequence

from trimtab.core import format_bytes
from trimtab.partition import svg
from trimtab.partition.devices import Devices
from trimtab.partition.explain import alike, device_names
from trimtab.partition.plan import DeviceUse, Forecast
from trimtab.partition.problem import usable_memory

PURPOSES = ("weights", "gradients", "optimizer", "activations", "workspace")
_FILL = dict(zip(PURPOSES, ("#4269d0", "#6cc5b0", "#a463f2", "#efb118", "#9c6b4e"), strict=True))
_FREE, _OVER = "#eceef0", "#d62728"
_LEFT, _WIDTH, _LINE, _GAP = 190, 900, 20, 5
MOST_BARS = 64


def memory_picture(forecast: Forecast, devices: Devices) -> str:
    """A bar for every sort of device in use, all on one scale; what is over the edge is red."""
    groups = alike(devices, forecast)
    shown = groups[:MOST_BARS]
    most = max(max(uses[0].memory, usable_memory(devices[uses[0].device])) for uses in shown)
    parts: list[str] = []
    for line, uses in enumerate(shown):
        name = device_names(devices, [use.device for use in uses])
        parts += _bar(name, uses[0], devices, 8 + line * (_LINE + _GAP), most)
    height = 8 + len(shown) * (_LINE + _GAP)
    parts += _legend(height + 16, len(groups) - len(shown))
    return svg.drawing(_LEFT + _WIDTH + 40, height + 30, "Memory of each device", parts)


def _bar(name: str, use: DeviceUse, devices: Devices, top: float, most: float) -> Sequence[str]:
    scale, x = _WIDTH / most, float(_LEFT)
    limit = usable_memory(devices[use.device])
    parts = [svg.text(_LEFT - 8, top + 14, svg.shortened(name, 26), anchor="end")]
    for purpose in PURPOSES:
        size = getattr(use, purpose)
        title = f"{name}: {format_bytes(size)} of {purpose}"
        parts.append(svg.box(x, top, size * scale, _LINE, _FILL[purpose], title, f'class="{purpose}"'))
        x += size * scale
    if use.memory < limit:
        free = limit - use.memory
        title = f"{name}: {format_bytes(free)} free of {format_bytes(limit)} that can be used"
        parts.append(svg.box(x, top, free * scale, _LINE, _FREE, title, 'class="free"'))
    else:
        edge = _LEFT + limit * scale
        title = f"{name}: {format_bytes(use.memory - limit)} too much for {format_bytes(limit)}"
        parts.append(svg.curve(f"M{edge:.1f} {top - 2:.1f}v{_LINE + 4}", _OVER, 2.5, title))
    return parts


def _legend(top: float, left_out: int) -> list[str]:
    parts = []
    for place, (name, color) in enumerate([*_FILL.items(), ("free", _FREE)]):
        parts.append(svg.box(_LEFT + place * 100, top - 9, 11, 11, color))
        parts.append(svg.text(_LEFT + place * 100 + 16, top, name))
    if left_out:
        parts.append(svg.text(_LEFT + 610, top, f"{left_out} more sorts of devices are not drawn", svg.SOFT))
    return parts
