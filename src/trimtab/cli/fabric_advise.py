"""`trimtab fabric advise`: how often to save, and what surviving dead links is worth."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.fabric_advise_output import print_advice
from trimtab.cli.keeping import Keeping
from trimtab.cli.options import json_option

if TYPE_CHECKING:
    from trimtab.fabric import Assumption, Failures

_COSTS = "What a failure costs: 30s, or a range, 20s..60s"
_COUNTED, _OUTPUT = "What was counted", "What to print"


def advise_command(
    devices: Annotated[int, typer.Argument(metavar="DEVICES", help="Of the job.", show_default=False)],
    device: Annotated[str, typer.Option(help="Which accelerator, for its price in the catalog.")] = "H100",
    price: Annotated[
        str | None, typer.Option(help="Of one device, instead: $2.50/h or 2..3.", show_default=False)
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(help="Between checkpoints, where it is not the best one.", show_default=False),
    ] = None,
    saving: Annotated[
        str | None, typer.Option(help="A checkpoint.", rich_help_panel=_COSTS, show_default=False)
    ] = None,
    noticing: Annotated[
        str | None,
        typer.Option(help="Until the job knows that it is dead.", rich_help_panel=_COSTS, show_default=False),
    ] = None,
    restarting: Annotated[
        str | None, typer.Option(help="Up to the first step.", rich_help_panel=_COSTS, show_default=False)
    ] = None,
    stall: Annotated[
        str | None,
        typer.Option(help="Of a failure that is survived.", rich_help_panel=_COSTS, show_default=False),
    ] = None,
    survived: Annotated[
        str | None,
        typer.Option(
            help="Share of failures at the edge: 0.9 or 0.5..1.", rich_help_panel=_COSTS, show_default=False
        ),
    ] = None,
    slowdown: Annotated[
        str | None,
        typer.Option(help="Of every step, as a share: 0.001.", rich_help_panel=_COSTS, show_default=False),
    ] = None,
    interruptions: Annotated[
        float | None, typer.Option(help="Of jobs, in all.", rich_help_panel=_COUNTED, show_default=False)
    ] = None,
    counted_for: Annotated[
        str | None, typer.Option(help="Such as 54d.", rich_help_panel=_COUNTED, show_default=False)
    ] = None,
    counted_on: Annotated[
        float | None, typer.Option(help="Devices.", rich_help_panel=_COUNTED, show_default=False)
    ] = None,
    network_share: Annotated[
        float | None,
        typer.Option(help="Due to switches and cables.", rich_help_panel=_COUNTED, show_default=False),
    ] = None,
    card_share: Annotated[
        float | None, typer.Option(help="Due to network cards.", rich_help_panel=_COUNTED, show_default=False)
    ] = None,
    as_json: Annotated[bool, json_option(_OUTPUT)] = False,
) -> None:
    """Say how often to save checkpoints, and what a job loses a month with and without the fabric.

    `trimtab fabric advise 1024 --saving 30s --restarting 2m..5m`

    Without counts of your own, failures come as often as in Meta's Llama 3 report: 466 interruptions in 54
    days on 16,000 GPUs, 8.4 % of them by switches and cables, 1.7 % by network cards. The advice is written
    down as a decision; `trimtab decisions` shows it, beside what Young's rule without the fabric would lose.
    """
    from trimtab.core import parse_duration, parse_price, to_plain
    from trimtab.fabric import Question, advice_decision, advise, catalog_price

    told = {
        "saving": _range(saving, "--saving", parse_duration),
        "noticing": _range(noticing, "--noticing", parse_duration),
        "restarting": _range(restarting, "--restarting", parse_duration),
        "stall": _range(stall, "--stall", parse_duration),
        "survived": _range(survived, "--survived", _share),
        "slowdown": _range(slowdown, "--slowdown", _share),
    }
    question = Question(
        devices,
        _range(price, "--price", parse_price) or catalog_price(device),
        _failures(interruptions, counted_for, counted_on, network_share, card_share),
        interval=None if interval is None else parse_duration(interval),
        **{name: value for name, value in told.items() if value is not None},
    )
    advice = advise(question)
    made, ledger = advice_decision(advice), Keeping()
    ledger.record(made)
    decision = ledger.id_of(made.id)
    if as_json:
        print(json.dumps({"decision": decision or None, **to_plain(advice)}))
    else:
        print_advice(advice)
        print(f"decision {decision}: {made.reason}" if decision else made.reason)
    ledger.require()


def _range(text: str | None, option: str, parse: Callable[[str], float]) -> "Assumption | None":
    """A number, or two with their geometric mean between; the plain one where a range begins at 0."""
    from trimtab.core import BadInputError
    from trimtab.fabric import Assumption

    if text is None:
        return None
    low, dots, high = text.partition("..")
    if not dots:
        return Assumption.given(parse(text))
    ends = parse(low), parse(high)
    if ends[0] > ends[1]:
        raise BadInputError(
            f'{option} is "{text}"; a range goes from the smaller to the larger: {high}..{low}'
        )
    middle = math.sqrt(ends[0] * ends[1]) if ends[0] > 0.0 else ends[1] / 2.0
    return Assumption.given(min(max(middle, ends[0]), ends[1]), *ends)


def _share(text: str) -> float:
    from trimtab.core import BadInputError

    try:
        return float(text)
    except ValueError:
        raise BadInputError(f'"{text}" is not a share; write it like 0.9') from None


def _failures(
    interruptions: float | None,
    counted_for: str | None,
    counted_on: float | None,
    network_share: float | None,
    card_share: float | None,
) -> "Failures":
    """Counts belong together; shares may be one's own beside the report's counts."""
    from trimtab.core import BadInputError, parse_duration
    from trimtab.fabric import Failures

    report = Failures()
    shares = (
        report.network_share if network_share is None else network_share,
        report.card_share if card_share is None else card_share,
    )
    if interruptions is None and counted_for is None and counted_on is None:
        return Failures(report.interruptions, report.seconds, report.devices, *shares, report.reason)
    if interruptions is None or counted_for is None or counted_on is None:
        raise BadInputError(
            "a rate is --interruptions, --counted-for and --counted-on: give all three or none"
        )
    return Failures(interruptions, parse_duration(counted_for), counted_on, *shares, "given")
