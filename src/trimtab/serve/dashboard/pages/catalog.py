"""Catalog: what can be rented, what it is made of, what it costs."""

from typing import Any

from nicegui import ui

from trimtab.core import HOUR, Offer, format_bytes, format_money, parse_bytes, parse_price
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Column, Table
from trimtab.serve.settings import comma_separated
from trimtab.store import Page

_AT_ONCE = 200
_LONG = 3600.0  # s; the catalog changes with Trimtab's version


def _hourly(price: float) -> str:
    return format_money(price * HOUR)


_OFFERS = (
    Column("Offer", lambda offer: offer.key),
    Column("Accelerators", lambda o: f"{o.accelerators} × {o.accelerator}" if o.accelerator else "none"),
    Column("vCPUs", lambda offer: offer.vcpus, "{:g}".format),
    Column("Memory", lambda offer: offer.memory, format_bytes),
    Column("Network", lambda offer: offer.network or None, lambda rate: f"{rate * 8 / 1e9:.3g} Gbit/s"),
    Column("Per hour", lambda offer: offer.price, _hourly),
    Column("Spot, per hour", lambda offer: offer.spot_price, _hourly),
    Column("Price of", lambda offer: offer.price_date.isoformat()),
)
_DEVICES = (
    Column("Accelerator", lambda device: device.name),
    Column("Vendor", lambda device: device.vendor),
    Column("Memory", lambda device: device.memory, format_bytes),
    Column("Bandwidth", lambda device: device.memory_bandwidth, lambda rate: f"{rate / 1e9:,.0f} GB/s"),
    Column(
        "TFLOP/s by number format",
        lambda device: max(device.peak.values(), default=0.0),
        text=lambda device: ", ".join(f"{name} {rate / 1e12:,.4g}" for name, rate in device.peak.items()),
    ),
    Column("Power", lambda device: device.power, "{:g} W".format),
    Column("Since", lambda device: device.year, str),
)


async def draw(visit: Visit, parameters: Parameters) -> None:
    widgets.heading("Offers, cheapest first")
    with widgets.element("div", "form"):
        clouds = ui.input(label="Clouds, like aws, gcp").props("outlined dense")
        devices = ui.input(label="Accelerators, like A100").props("outlined dense")
        memory = ui.input(label="At least memory, like 64GiB").props("outlined dense")
        price = ui.input(label="At most per hour, like $3").props("outlined dense")
        spot = ui.checkbox("Spot machines")
    with widgets.element("div", "row-of-buttons"):
        find = widgets.button("Find", main=True)
    status = widgets.notice()

    async def offers(**conditions: Any) -> tuple[Offer, ...]:
        key = ("offers", *sorted(conditions.items()))
        page: Page[Offer] = await visit.ask(
            key, lambda service: service.catalog.offers(_AT_ONCE, **conditions), age=_LONG
        )
        count = len(page.items)
        more = f"The cheapest {count} are shown." if page.next else f"{count} offers."
        status.set_text(more if count else "No offer meets all of these conditions; loosen one of them.")
        return page.items

    with widgets.element("div"):
        table = Table("Offers", _OFFERS, await offers())

    async def search() -> None:
        with widgets.errors_shown(status):
            table.show(
                await offers(
                    cloud=comma_separated(clouds.value or ""),
                    accelerator=comma_separated(devices.value or ""),
                    min_memory=parse_bytes(memory.value) if memory.value else None,
                    max_price=parse_price(price.value) if price.value else None,
                    spot=spot.value,
                )
            )

    find.on("click", search)
    widgets.heading("Accelerators")
    known = await visit.ask("accelerators", lambda service: service.catalog.accelerators(), age=_LONG)
    Table("Accelerators", _DEVICES, known)


PAGE = DashboardPage("Catalog", "/catalog", "sell", "c", "catalog", draw)
