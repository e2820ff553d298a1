"""Catalog: what can be rented, what it is made of, what it costs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nicegui import ui

from trimtab.core import HOUR, Offer, TrimtabError, format_bytes, format_money, parse_bytes, parse_price
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Column, Rows, Table, button, element, heading, notice
from trimtab.serve.problems import problem_of
from trimtab.serve.settings import comma_separated as texts
from trimtab.store import Page as Listed

if TYPE_CHECKING:
    from trimtab.catalog import Accelerator

_AT_ONCE = 200
_LONG = 3600.0  # s; the catalog changes with Trimtab's version
_OFFERS = (
    Column("id", "Offer"),
    Column("device", "Accelerators"),
    Column("vcpus", "vCPUs", "number"),
    Column("memory", "Memory", "number"),
    Column("network", "Network", "number"),
    Column("price", "Per hour", "number"),
    Column("spot", "Spot, per hour", "number"),
    Column("date", "Price of"),
)
_DEVICES = (
    Column("id", "Accelerator"),
    Column("vendor", "Vendor"),
    Column("memory", "Memory", "number"),
    Column("bandwidth", "Bandwidth", "number"),
    Column("rate", "TFLOP/s by number format", "number"),
    Column("power", "Power", "number"),
    Column("year", "Since", "number"),
)


async def draw(visit: Visit, asked: Asked) -> None:
    """Offers, cheapest first, and accelerators."""
    heading("Offers, cheapest first")
    with element("div", "form"):
        clouds = ui.input(label="Clouds, like aws, gcp").props("outlined dense")
        devices = ui.input(label="Accelerators, like A100").props("outlined dense")
        memory = ui.input(label="At least memory, like 64GiB").props("outlined dense")
        price = ui.input(label="At most per hour, like $3").props("outlined dense")
        spot = ui.checkbox("Spot machines")
    with element("div", "row-of-buttons"):
        find = button("Find", main=True)
    said = notice()
    with element("div"):
        found = await _offers(visit)
        table = Table("Offers", _OFFERS, offer_rows(found.items))
    said.set_text(_count(found))

    async def search() -> None:
        try:
            found = await _offers(
                visit,
                cloud=texts(clouds.value or ""),
                accelerator=texts(devices.value or ""),
                min_memory=parse_bytes(memory.value) if memory.value else None,
                max_price=parse_price(price.value) if price.value else None,
                spot=spot.value,
            )
        except TrimtabError as error:
            said.set_text(problem_of(error).detail)
            return
        table.show(offer_rows(found.items))
        said.set_text(_count(found))

    find.on("click", search)
    heading("Accelerators")
    known = await visit.ask("accelerators", lambda s: tuple(s.catalog.accelerators()), age=_LONG)
    Table("Accelerators", _DEVICES, device_rows(known))


async def _offers(visit: Visit, **wanted: Any) -> Listed[Offer]:
    key = ("offers", *sorted(wanted.items()))
    return await visit.ask(key, lambda s: s.catalog.offers(_AT_ONCE, **wanted), age=_LONG)


def _count(found: Listed[Offer]) -> str:
    if not found.items:
        return "Nothing is offered like that; ask for less."
    return f"The cheapest {len(found.items)} are shown." if found.next else f"{len(found.items)} offers."


def offer_rows(offers: tuple[Offer, ...]) -> Rows:
    """A row for each offer."""
    return [
        {
            "id": offer.key,
            "device": f"{offer.accelerators} × {offer.accelerator}" if offer.accelerator else "none",
            "vcpus": f"{offer.vcpus:g}",
            "vcpus#": offer.vcpus,
            "memory": format_bytes(offer.memory),
            "memory#": offer.memory,
            "network": f"{offer.network * 8 / 1e9:.3g} Gbit/s" if offer.network else "",
            "network#": offer.network,
            "price": format_money(offer.price * HOUR),
            "price#": offer.price,
            "spot": format_money(offer.spot_price * HOUR) if offer.spot_price is not None else "",
            "spot#": offer.spot_price,
            "date": offer.price_date.isoformat(),
        }
        for offer in offers
    ]


def device_rows(devices: "Sequence[Accelerator]") -> Rows:
    """A row for each accelerator."""
    return [
        {
            "id": device.name,
            "vendor": device.vendor,
            "memory": format_bytes(device.memory),
            "memory#": device.memory,
            "bandwidth": f"{device.memory_bandwidth / 1e9:,.0f} GB/s",
            "bandwidth#": device.memory_bandwidth,
            "rate": _rate(device.peak),
            "rate#": max(device.peak.values(), default=0.0),
            "power": f"{device.power:g} W" if device.power is not None else "",
            "power#": device.power,
            "year": str(device.year),
            "year#": device.year,
        }
        for device in devices
    ]


def _rate(peak: Mapping[str, float]) -> str:
    """Of each number format, in TFLOP/s."""
    return ", ".join(f"{name} {rate / 1e12:,.4g}" for name, rate in peak.items())


PAGE = Page("Catalog", "/catalog", "sell", "c", "catalog", draw)
