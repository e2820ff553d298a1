"""Built-in and imported offers, and facts about instances that price lists lack."""

import csv
import tomllib
from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from trimtab.catalog.table import OfferTable, load_table
from trimtab.core import GIB, HOUR, Offer, home

GBIT = 1e9 / 8
"""Bytes per second in one Gbit/s."""


@cache
def network_bandwidth(cloud: str, instance: str, vcpus: float) -> float:
    """Sustained bytes per second from an instance to its peers.

    From the vendor's documentation if the instance is listed, else a cautious guess by vCPU count.
    """
    for pattern, gbit in _facts()["network"].get(cloud, {}).items():
        if fnmatchcase(instance, pattern):
            return float(gbit) * GBIT
    default = _facts()["default"]
    fitting = [gbit for least, gbit in zip(default["vcpus"], default["gbit"], strict=True) if vcpus >= least]
    return float(max(fitting, default=default["gbit"][0])) * GBIT


def corrected(
    cloud: str, instance: str, accelerator: str | None, accelerators: float
) -> tuple[str | None, float]:
    """The accelerator and its count, corrected where published lists are known to be wrong."""
    correction: Mapping[str, Any] = _facts()["correction"].get(cloud, {}).get(instance, {})
    return correction.get("accelerator", accelerator), correction.get("accelerators", accelerators)


ARCHITECTURES = ("x86_64", "arm64")


@cache
def architecture(cloud: str, instance: str) -> str:
    """The architecture of an instance's CPUs, one of `ARCHITECTURES`."""
    patterns = _facts()["arm64"].get(cloud, ())
    return ARCHITECTURES[any(fnmatchcase(instance.lower(), pattern.lower()) for pattern in patterns)]


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(files("trimtab.catalog").joinpath("instances.toml").read_text("utf-8"))


def load_offers() -> OfferTable:
    """Every offer: a provider's imported ones if there are any, else its built-in ones."""
    imported = {path.stem: load_table(path) for path in sorted(imported_path("").parent.glob("[!.]*.npz"))}
    builtin = builtin_offers()
    if not imported:
        return builtin
    return builtin.select(~builtin.cloud.matches(imported)).concat(*imported.values())


def imported_path(provider: str) -> Path:
    """The file of a provider's imported offers."""
    return home() / "catalog" / f"{provider}.npz"


@cache
def builtin_offers() -> OfferTable:
    """The offers that come with the package."""
    with files("trimtab.catalog").joinpath("offers.csv").open(encoding="utf-8") as file:
        return OfferTable.from_offers(
            Offer(
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
            for row in csv.DictReader(file)
        )
