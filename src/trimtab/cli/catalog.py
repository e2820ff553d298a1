"""`trimtab catalog`: list offers and accelerators, show one, import price lists."""

import json
import time
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from trimtab import catalog
from trimtab.cli.place import is_here, place
from trimtab.cli.terminal import Json, command_group, new_table, one_of, print_table
from trimtab.core import (
    BadInputError,
    NotFoundError,
    format_bandwidth,
    format_bytes,
    format_flop_rate,
    format_price,
    parse_bytes,
    parse_price,
    to_plain,
)
from trimtab.serve import SORT_COLUMNS, find_offers

catalog_app = command_group("Offers and accelerators: hardware facts and prices.")

_MOST = 1_000_000  # offers of a server


@catalog_app.command("ls")
def list_offers(
    cloud: list[str] | None = typer.Option(
        None, metavar="NAME", help="Only this cloud, such as aws (repeat)."
    ),
    region: list[str] | None = typer.Option(
        None, metavar="NAME", help='Only this region; wildcards allowed: "us-*".'
    ),
    accelerator: list[str] | None = typer.Option(
        None, metavar="NAME", help='Only this accelerator, or "RTX*".'
    ),
    min_memory: str | None = typer.Option(
        None, metavar="SIZE", help="At least this much host memory: 64GiB."
    ),
    min_accelerators: int | None = typer.Option(None, help="At least this many accelerators."),
    max_price: str | None = typer.Option(None, metavar="PRICE", help="At most this price: $4/h."),
    spot: bool = typer.Option(
        False, "--spot", help="Only offers with a spot price, which --max-price limits."
    ),
    sort: str | None = typer.Option(None, metavar="COLUMN", help=f"Sort by {', '.join(SORT_COLUMNS)}."),
    limit: int = typer.Option(20, help="How many rows to show; 0 shows all.", min=0),
    facts: bool = typer.Option(False, "--accelerators", help="List accelerators instead of offers."),
    as_json: Json = False,
    timing: bool = typer.Option(False, "--timing", help="Print how long loading and searching took."),
) -> None:
    """List offers, cheapest first, or accelerators.

    Example: `trimtab catalog ls --accelerator H100 --region "us-*" --spot --max-price '$25/h'`
    """
    if facts:
        _print_accelerators(catalog.accelerators(), as_json)
        return
    started = time.perf_counter()
    everything = _offers()
    loaded = time.perf_counter()
    matching = find_offers(
        everything,
        one_of("--sort", sort, tuple(SORT_COLUMNS)) if sort else "spot" if spot else "price",
        cloud=cloud,
        region=region,
        accelerator=accelerator,
        min_memory=parse_bytes(min_memory) if min_memory is not None else None,
        min_accelerators=min_accelerators,
        max_price=parse_price(max_price) if max_price is not None else None,
        spot=spot or None,
    )
    shown = matching.select(range(min(len(matching), limit or len(matching))))
    searched = time.perf_counter()
    if as_json:
        _print_json(shown.offers())
    elif len(matching):
        _print_offers(shown, hidden=len(matching) - len(shown))
    if timing:
        typer.echo(
            f"{len(everything)} offers loaded in {(loaded - started) * 1e3:.1f} ms, "
            f"{len(matching)} found in {(searched - loaded) * 1e3:.1f} ms",
            err=True,
        )
    if not len(matching) and not as_json:
        raise NotFoundError(
            f"none of the {len(everything)} offers meets all of these conditions; loosen one of them"
        )


@catalog_app.command("show")
def show(
    name: str = typer.Argument(
        ..., help="An accelerator (H200) or an instance (p5.48xlarge, aws/us-east-1/p5.48xlarge)."
    ),
    as_json: Json = False,
) -> None:
    """Show the facts about an accelerator or an instance, with its prices in every region.

    Example: `trimtab catalog show A100-80GB`
    """
    table = _offers()
    device = catalog.find_accelerator(name)
    offers = find_offers(table, accelerator=name) if device else find_offers(_instance_offers(table, name))
    if as_json:
        _print_json({"accelerator": device, "offers": offers.offers()} if device else offers.offers())
        return
    if device is not None:
        _print_accelerator(device)
    if len(offers):
        _print_offers(offers)
    elif device is not None:
        typer.echo("No provider in the catalog offers it.")


def _offers() -> catalog.OfferTable:
    """All offers, of the catalog here or of the server."""
    if is_here():
        return catalog.load_offers()
    with place() as at:
        return catalog.OfferTable.from_offers(at.catalog.offers(_MOST).items)


@catalog_app.command("import")
def import_price_lists(
    paths: list[Path] = typer.Argument(
        ..., help="A price list (.csv, .csv.gz), a provider's folder, or a folder of these."
    ),
    provider: str | None = typer.Option(
        None,
        metavar="NAME",
        help="Provider of the list (aws), or the provider to import if the list has several.",
    ),
    date_text: str | None = typer.Option(
        None,
        "--date",
        metavar="YYYY-MM-DD",
        help="Date of the prices; default: the file's modification date.",
    ),
    as_json: Json = False,
) -> None:
    """Import published price lists. A provider's imported offers replace its built-in ones.

    Example: `trimtab catalog import ~/.sky/catalogs/v8/aws --date 2026-08-22`
    """
    try:
        day = date.fromisoformat(date_text) if date_text is not None else None
    except ValueError:
        raise BadInputError(f'--date is "{date_text}"; write a day like 2026-08-22') from None
    reports = catalog.import_offers(paths, provider, day)
    if as_json:
        _print_json(reports)
    else:
        _print_reports(reports)


def _instance_offers(table: catalog.OfferTable, name: str) -> catalog.OfferTable:
    """The offers of an instance, or the one offer with that key."""
    cloud, _, rest = name.partition("/")
    region, _, instance = rest.partition("/")
    offers = (
        table.where(cloud=cloud, region=region, instance=instance) if instance else table.where(instance=name)
    )
    if len(offers):
        return offers
    names = [*table.instance.vocabulary, *(a.name for a in catalog.accelerators())]
    spelled = {n.lower(): n for n in names}
    near = [spelled[n] for n in get_close_matches((instance or name).lower(), spelled, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`trimtab catalog ls` lists all offers"
    raise NotFoundError(f'the catalog has no accelerator or instance called "{name}"; {hint}')


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(to_plain(value), indent=2))


def _print_offers(table: catalog.OfferTable, hidden: int = 0) -> None:
    dates = sorted({offer.price_date.isoformat() for offer in table})
    grid = new_table("instance", "devices", ">vCPUs", ">memory, network", ">on demand", ">spot")
    for offer in table:
        dated = f" ({offer.price_date})" if len(dates) > 1 else ""
        grid.add_row(
            f"{offer.instance}\n[dim]{offer.cloud} {offer.region}{dated}[/dim]",
            f"{offer.accelerators}×{offer.accelerator}" if offer.accelerator else "",
            f"{offer.vcpus:g}",
            f"{format_bytes(offer.memory)}\n[dim]{format_bandwidth(offer.network)}[/dim]",
            format_price(offer.price),
            format_price(offer.spot_price) if offer.spot_price is not None else "",
        )
    print_table(grid)
    more = f"; {hidden:,} more, --limit 0 shows all" if hidden else ""
    typer.echo(f"prices of {' to '.join({dates[0]: 0, dates[-1]: 0})}{more}")


def _print_accelerators(facts: tuple[catalog.Accelerator, ...], as_json: bool) -> None:
    if as_json:
        _print_json(facts)
        return
    grid = new_table("<name", ">year", ">GB", ">GB/s", ">fp32", ">16 bit", ">fp8", ">link GB/s", ">W")
    for a in facts:
        rates = [a.peak.get("fp32"), a.peak.get("bf16") or a.peak.get("fp16"), a.peak.get("fp8")]
        grid.add_row(
            a.name,
            str(a.year),
            f"{a.memory / 1e9:.4g}",
            f"{a.memory_bandwidth / 1e9:.4g}",
            *(f"{rate / 1e12:.4g}" if rate else "" for rate in rates),
            f"{a.interconnect.bandwidth / 1e9:.4g}",
            f"{a.power:g}" if a.power is not None else "",
        )
    print_table(grid)
    typer.echo("Dense peak rates in TFLOP/s; the link is one direction.")


def _print_accelerator(a: catalog.Accelerator) -> None:
    from trimtab import predict  # late: only this command needs it

    grid = Table(title=f"{a.vendor} {a.name} ({a.year})", show_header=False, title_justify="left")
    grid.add_row("also called", ", ".join(a.aliases))
    grid.add_row("memory", f"{a.memory / 1e9:.4g} GB")
    grid.add_row("memory bandwidth", format_bandwidth(a.memory_bandwidth))
    for number_format, rate in a.peak.items():
        operations = format_flop_rate(rate)
        if number_format == "int8":
            operations = operations.replace("FLOP", "OP")
        grid.add_row(f"peak {number_format}, dense", operations)
    link = f"{a.interconnect.name}, {format_bandwidth(a.interconnect.bandwidth)} one direction"
    grid.add_row("interconnect", link)
    grid.add_row("power", f"{a.power:g} W" if a.power is not None else "not published")
    grid.add_row("estimates rest on", a.rests_on)
    low, high = predict.time_range(a)
    grid.add_row("training steps", f"truth over estimate {low:.2f} to {high:.2f} in 90 % of cases")
    print_table(grid)


def _print_reports(reports: tuple[catalog.ImportReport, ...]) -> None:
    grid = Table()
    for heading in ("provider", "offers", "regions", "prices of", "no price", "invalid", "left out"):
        grid.add_column(heading, justify="left" if heading in ("provider", "left out") else "right")
    for r in reports:
        left_out = ", ".join(f"{count} {reason}" for reason, count in r.left_out.items())
        counts = (r.offers, r.regions, r.price_date.isoformat(), r.unpriced, r.invalid)
        grid.add_row(r.provider, *map(str, counts), left_out)
    print_table(grid)
    names = sorted({name for r in reports for name in r.unknown_accelerators})
    if names:
        offers = sum(sum(r.unknown_accelerators.values()) for r in reports)
        typer.echo(f"{offers} offers cannot be estimated, for lack of facts about {', '.join(names)}.")
    typer.echo("These offers now replace the built-in ones of the same providers.")
