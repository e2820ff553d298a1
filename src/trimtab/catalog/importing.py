"""Imports published price lists as offers, stored by provider."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path

from trimtab.catalog.hardware import find_accelerator
from trimtab.catalog.offers import corrected, imported_path, network_bandwidth
from trimtab.catalog.pairing import priced_with_hosts
from trimtab.catalog.pricelist import PriceRow, read_price_list
from trimtab.catalog.table import OfferTable, save_table
from trimtab.core import GIB, HOUR, BadInputError, NotFoundError, Offer

PROVIDERS = (
    *(
        "aws",
        "azure",
        "cudo",
        "do",
        "fluidstack",
        "gcp",
        "hyperbolic",
        "hyperstack",
        "ibm",
        "lambda",
        "mithril",
    ),
    *("nebius", "oci", "ovhcloud", "paperspace", "primeintellect", "runpod", "scaleway", "scp", "seeweb"),
    *("shadeform", "vast", "verda", "vsphere", "yotta"),
)
"""Providers with price lists in the format that this module reads."""

LIST_NAME = "vms.csv"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Result of importing one provider's price list; all counts except `offers` are of rows."""

    provider: str
    offers: int
    regions: int
    price_date: date
    unpriced: int = 0
    invalid: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    unknown_accelerators: Mapping[str, int] = field(default_factory=dict)


def import_offers(
    paths: Sequence[Path], provider: str | None = None, price_date: date | None = None
) -> tuple[ImportReport, ...]:
    """Read the lists under `paths` and store their offers in place of a provider's built-in or earlier ones.

    A path is a price list, a provider's folder with a vms.csv, or a folder of such folders. Prices are dated
    `price_date`, or the day of the file's last change. Nothing is stored unless all lists can be read.
    """
    named = provider_name(provider) if provider is not None else None
    tables: dict[str, OfferTable] = {}
    reports: dict[str, ImportReport] = {}
    for path in paths:
        for source, owner in _sources(Path(path), named):
            for report, table in _read(source, owner, named, price_date):
                if report.provider in tables:
                    raise BadInputError(
                        f"{report.provider} is in more than one of the given lists; import one at a time"
                    )
                tables[report.provider], reports[report.provider] = table, report
    for name, table in tables.items():
        save_table(table, imported_path(name))
    return tuple(reports.values())


def provider_name(name: str) -> str:
    """The provider in the catalog's spelling; NotFoundError for an unknown one."""
    if name.lower() in PROVIDERS:
        return name.lower()
    near = get_close_matches(name.lower(), PROVIDERS, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(PROVIDERS)}"
    raise NotFoundError(f'no provider is called "{name}"; {hint}')


def _sources(path: Path, provider: str | None) -> list[tuple[Path, str | None]]:
    """The price lists under `path`, each with the provider that its folder is named for, or None."""
    if not path.is_dir():
        folder = path.absolute().parent.name.lower()
        return [(path, provider or (folder if folder in PROVIDERS else None))]
    if (path / LIST_NAME).is_file():
        return [(path / LIST_NAME, provider or provider_name(path.absolute().name))]
    lists = sorted(path.glob(f"*/{LIST_NAME}"))
    owned = [(file, file.parent.name.lower()) for file in lists if file.parent.name.lower() in PROVIDERS]
    chosen: list[tuple[Path, str | None]] = [(f, o) for f, o in owned if provider in (None, o)]
    if not chosen:
        raise BadInputError(
            f"{path} has no price list of {provider or 'a known provider'}: "
            f"there should be a {LIST_NAME} in it, or in folders in it named like aws or gcp"
        )
    return chosen


def _read(
    path: Path, owner: str | None, only: str | None, price_date: date | None
) -> list[tuple[ImportReport, OfferTable]]:
    listed = read_price_list(path, owner, only)
    day = price_date or datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    results = []
    for cloud, rows in listed.rows.items():
        rentable, left_out = _collapsed(rows), Counter[str]()
        if cloud == "gcp":
            rentable, left_out = priced_with_hosts(rentable)
        offers, unusable = _offers(rentable, day)
        table = OfferTable.from_offers(offers)
        if not offers:
            raise BadInputError(f"{path} has no offer of {cloud} that can be rented; nothing was imported")
        unknown = Counter(
            o.accelerator for o in offers if o.accelerator and not find_accelerator(o.accelerator)
        )
        report = ImportReport(
            provider=provider_name(cloud),
            offers=len(table),
            regions=len({o.region for o in offers}),
            price_date=day,
            unpriced=listed.unpriced[cloud],
            invalid=listed.invalid[cloud],
            left_out=dict(left_out + unusable),
            unknown_accelerators=dict(unknown),
        )
        results.append((report, table))
    return results


def _collapsed(rows: Iterable[PriceRow]) -> list[PriceRow]:
    """One row per instance, accelerator and region: the lowest price and spot price over its zones."""
    cheapest: dict[tuple[str, str, str, float], PriceRow] = {}
    for row in rows:
        key = (row.region, row.instance, row.accelerator, row.accelerators)
        best = cheapest.get(key)
        if best is not None:
            spots = [s for s in (row.spot_price, best.spot_price) if s is not None]
            row = replace(row, price=min(row.price, best.price), spot_price=min(spots, default=None))
        cheapest[key] = row
    return list(cheapest.values())


def _offers(rows: Iterable[PriceRow], day: date) -> tuple[list[Offer], Counter[str]]:
    offers, left_out = list[Offer](), Counter[str]()
    for row in rows:
        name, count = corrected(row.cloud, row.instance, row.accelerator or None, row.accelerators)
        if count != int(count):
            left_out["shares of an accelerator"] += 1
        elif row.price <= 0:
            left_out["offers without a price above zero"] += 1
        elif not row.instance or row.vcpus is None or row.memory is None:
            left_out["accelerators without a known machine"] += 1
        else:
            known = find_accelerator(name) if name else None
            offers.append(
                Offer(
                    cloud=row.cloud,
                    region=row.region,
                    instance=row.instance,
                    vcpus=row.vcpus,
                    memory=row.memory * GIB,
                    accelerator=known.name if known else name,
                    accelerators=int(count),
                    price=row.price / HOUR,
                    spot_price=row.spot_price / HOUR if row.spot_price else None,
                    network=network_bandwidth(row.cloud, row.instance, row.vcpus),
                    price_date=day,
                )
            )
    return offers, left_out
