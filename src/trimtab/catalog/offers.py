"""The offers there are: those that come with the package, and imported ones in their place."""

import csv
from collections.abc import Iterator
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path

from trimtab.catalog.archive import load_table
from trimtab.catalog.instances import GBIT
from trimtab.catalog.table import OfferTable
from trimtab.core import GIB, HOUR, Offer, home


def load_offers() -> OfferTable:
    """Every offer: a provider's imported ones where there are any, its built-in ones otherwise."""
    imported = {path.stem: load_table(path) for path in sorted(imported_path("").parent.glob("[!.]*.npz"))}
    own = builtin_offers()
    if not imported:
        return own
    replaced = own.cloud.matches(imported)
    return own.select(~replaced).concat(*imported.values())


def imported_path(provider: str) -> Path:
    """Where the imported offers of `provider` are kept."""
    return home() / "catalog" / f"{provider}.npz"


@cache
def builtin_offers() -> OfferTable:
    """The offers that come with the package."""
    return OfferTable.from_offers(_rows())


def _rows() -> Iterator[Offer]:
    with files("trimtab.catalog").joinpath("offers.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield Offer(
                cloud=row["cloud"],
                region=row["region"],
                instance=row["instance"],
                vcpus=float(row["vcpus"]),
                memory=float(row["memory_gib"]) * GIB,
                accelerator=row["accelerator"] or None,
                accelerators=int(row["accelerators"]),
                price=float(row["price_per_hour"]) / HOUR,
                spot_price=float(row["spot_price_per_hour"]) / HOUR if row["spot_price_per_hour"] else None,
                network=float(row["network_gbit"]) * GBIT,
                price_date=date.fromisoformat(row["price_date"]),
            )
