"""`trimtab catalog`: list what can be rented, look one thing up, import price lists."""

import json
import time
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from trimtab.catalog import (
    Accelerator,
    ImportReport,
    OfferTable,
    accelerators,
    find_accelerator,
    import_offers,
    load_offers,
)
from trimtab.cli.options import Json, command_group
from trimtab.cli.place import is_here, place
from trimtab.cli.terminal import new_table, print_table
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

catalog_app = command_group("What can be rented, what it is made of, what it costs.")

_MOST = 1_000_000  # offers of a server

SORT_COLUMNS = {
    "price": "price",
    "spot": "spot_price",
    "vcpus": "vcpus",
    "memory": "memory",
    "accelerators": "accelerators",
    "network": "network",
}


@catalog_app.command("ls")
def list_offers(
    cloud: Annotated[
        list[str] | None, typer.Option(help="Only this cloud, such as aws; may be repeated.")
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option(help='Only this region; wildcards allowed: "us-*".')
    ] = None,
    accelerator: Annotated[
        list[str] | None, typer.Option(help='Only this accelerator, by any usual name, or "RTX*".')
    ] = None,
    min_memory: Annotated[str | None, typer.Option(help="At least this much host memory: 64GiB.")] = None,
    min_accelerators: Annotated[int | None, typer.Option(help="At least so many accelerators.")] = None,
    max_price: Annotated[str | None, typer.Option(help="At most this price: $4/h.")] = None,
    spot: Annotated[
        bool, typer.Option("--spot", help="Only offers with a spot price; --max-price is about that one.")
    ] = False,
    sort: Annotated[str | None, typer.Option(help=f"Sort by {', '.join(SORT_COLUMNS)}.")] = None,
    limit: Annotated[int, typer.Option(help="Show so many rows; 0 shows all.", min=0)] = 20,
    facts: Annotated[
        bool, typer.Option("--accelerators", help="List the accelerators' facts instead of offers.")
    ] = False,
    as_json: Json = False,
    timing: Annotated[bool, typer.Option("--timing", help="Say how long loading and asking took.")] = False,
) -> None:
    """List offers, cheapest first, or the accelerators there are.

    Example: `trimtab catalog ls --accelerator H100 --region "us-*" --spot --max-price '$25/h'`
    """
    if facts:
        _print_accelerators(accelerators(), as_json)
        return
    sort = sort or ("spot" if spot else "price")
    if sort not in SORT_COLUMNS:
        raise BadInputError(f'--sort is "{sort}"; it should be one of {", ".join(SORT_COLUMNS)}')
    least_memory = parse_bytes(min_memory) if min_memory is not None else None
    highest_price = parse_price(max_price) if max_price is not None else None

    started = time.perf_counter()
    everything = _offers()
    loaded = time.perf_counter()
    found = everything.where(
        cloud=cloud,
        region=region,
        accelerator=accelerator,
        min_memory=least_memory,
        min_accelerators=min_accelerators,
        max_price=highest_price,
        spot=spot or None,
    )
    shown = _sorted(found, sort).select(range(min(len(found), limit or len(found))))
    asked = time.perf_counter()

    if as_json:
        _print_json(shown.offers())
    elif len(found):
        _print_offers(shown, hidden=len(found) - len(shown))
    if timing:
        typer.echo(
            f"{len(everything)} offers loaded in {(loaded - started) * 1e3:.1f} ms, "
            f"{len(found)} found in {(asked - loaded) * 1e3:.1f} ms",
            err=True,
        )
    if not len(found) and not as_json:
        raise NotFoundError(
            f"none of the {len(everything)} offers meets all of these conditions; loosen one of them"
        )


@catalog_app.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(help="An accelerator (H200) or an instance (p5.48xlarge, aws/us-east-1/p5.48xlarge)."),
    ],
    as_json: Json = False,
) -> None:
    """Show all that is known about an accelerator or an instance, with its prices in every region.

    Example: `trimtab catalog show A100-80GB`
    """
    table = _offers()
    known = find_accelerator(name)
    found = _sorted(table.where(accelerator=name) if known else _instance_offers(table, name), "price")
    if as_json:
        _print_json({"accelerator": known, "offers": found.offers()} if known else found.offers())
        return
    if known is not None:
        _print_accelerator(known)
    if len(found):
        _print_offers(found)
    elif known is not None:
        typer.echo("No provider in the catalog offers it.")


def _offers() -> OfferTable:
    """All there are, in the catalog here or in a server's."""
    if is_here():
        return load_offers()
    with place() as at:
        return OfferTable.from_offers(at.catalog.offers(_MOST).items)


@catalog_app.command("import")
def import_price_lists(
    paths: Annotated[
        list[Path],
        typer.Argument(help="A price list (.csv, .csv.gz), a provider's folder, or a folder of these."),
    ],
    provider: Annotated[
        str | None, typer.Option(help="Whose list it is (aws), or which provider to take from it.")
    ] = None,
    date_text: Annotated[
        str | None,
        typer.Option("--date", metavar="YYYY-MM-DD", help="When the prices were true; else the file's date."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Import published price lists. A provider's imported offers take the place of its built-in ones.

    Example: `trimtab catalog import ~/.sky/catalogs/v8/aws --date 2026-08-22`
    """
    reports = import_offers(paths, provider, _parse_date(date_text) if date_text is not None else None)
    if as_json:
        _print_json(reports)
    else:
        _print_reports(reports)


def _parse_date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadInputError(f'--date is "{text}"; write a day like 2026-08-22') from None


def _sorted(table: OfferTable, by: str) -> OfferTable:
    """Cheapest first by prices, largest first by sizes; offers without the price come last."""
    column = getattr(table, SORT_COLUMNS[by])
    return table.select((column if "price" in SORT_COLUMNS[by] else -column).argsort(kind="stable"))


def _instance_offers(table: OfferTable, name: str) -> OfferTable:
    """The offers of an instance, or the one offer with that key."""
    cloud, _, rest = name.partition("/")
    region, _, instance = rest.partition("/")
    found = (
        table.where(cloud=cloud, region=region, instance=instance) if instance else table.where(instance=name)
    )
    if len(found):
        return found
    names = [*table.instance.vocabulary, *(a.name for a in accelerators())]
    spelled = {n.lower(): n for n in names}
    near = [spelled[n] for n in get_close_matches((instance or name).lower(), spelled, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`trimtab catalog ls` lists what there is"
    raise NotFoundError(f'the catalog has no accelerator or instance called "{name}"; {hint}')


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(to_plain(value), indent=2))


def _print_offers(table: OfferTable, hidden: int = 0) -> None:
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


def _print_accelerators(facts: tuple[Accelerator, ...], as_json: bool) -> None:
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


def _print_accelerator(a: Accelerator) -> None:
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
    if a.constants:
        low, high = a.constants["time_error"]
        grid.add_row("measured", f"truth over estimated step time {low:.2f} to {high:.2f} in 90 % of cases")
    else:
        grid.add_row("measured", "no; estimates borrow another device's constants")
    print_table(grid)


def _print_reports(reports: tuple[ImportReport, ...]) -> None:
    grid = Table()
    for heading in ("provider", "offers", "regions", "prices of", "no price", "invalid", "left out"):
        grid.add_column(heading, justify="left" if heading in ("provider", "left out") else "right")
    for r in reports:
        left_out = ", ".join(f"{count} {what}" for what, count in r.left_out.items())
        counts = (r.offers, r.regions, r.price_date.isoformat(), r.unpriced, r.invalid)
        grid.add_row(r.provider, *map(str, counts), left_out)
    print_table(grid)
    names = sorted({name for r in reports for name in r.unknown_accelerators})
    if names:
        offers = sum(sum(r.unknown_accelerators.values()) for r in reports)
        typer.echo(f"{offers} offers cannot be estimated, for lack of facts about {', '.join(names)}.")
    typer.echo("These offers now take the place of the built-in ones of the same providers.")
