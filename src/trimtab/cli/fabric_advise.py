"""`trimtab fabric advise`: the best checkpoint interval, and the savings from surviving dead links."""

import json
import math
from collections.abc import Callable

import typer

from trimtab import fabric
from trimtab.cli.place import LedgerQueue
from trimtab.cli.terminal import Json, new_table, panel, print_rows, print_table, say
from trimtab.core import (
    BadInputError,
    Estimate,
    format_duration,
    format_money,
    format_price,
    parse_duration,
    parse_price,
    to_plain,
)

_costs = panel("Costs of a failure: 30s, or a range, 20s..60s")
_counted = panel("Your own counts of failures")


def advise_command(
    devices: int = typer.Argument(..., metavar="DEVICES", help="Number of the job's devices."),
    device: str = typer.Option("H100", metavar="NAME", help="The accelerator, for its price in the catalog."),
    price: str | None = typer.Option(
        None, metavar="PRICE", help="Price of one device instead: $2.50/h or 2..3."
    ),
    interval: str | None = typer.Option(
        None, metavar="DURATION", help="Time between checkpoints; default: the best one."
    ),
    saving: str | None = _costs(None, metavar="DURATION", help="Time to save a checkpoint."),
    noticing: str | None = _costs(None, metavar="DURATION", help="Time until a dead job is noticed."),
    restarting: str | None = _costs(
        None, metavar="DURATION", help="Time from the restart to the first step."
    ),
    stall: str | None = _costs(None, metavar="DURATION", help="Stall at a failure that is survived."),
    survived: str | None = _costs(
        None, metavar="SHARE", help="Share of edge failures survived: 0.9 or 0.5..1."
    ),
    slowdown: str | None = _costs(None, metavar="SHARE", help="Slowdown of every step, as a share: 0.001."),
    interruptions: float | None = _counted(None, help="Interruptions of jobs, in all."),
    counted_for: str | None = _counted(
        None, metavar="DURATION", help="Time in which they were counted: 54d."
    ),
    counted_on: float | None = _counted(None, help="Devices on which they were counted."),
    network_share: float | None = _counted(None, help="Share due to switches and cables."),
    card_share: float | None = _counted(None, help="Share due to network cards."),
    as_json: Json = False,
) -> None:
    """Print the best checkpoint interval, and monthly losses of a job with and without the fabric.

    `trimtab fabric advise 1024 --saving 30s --restarting 2m..5m`

    Without counts of your own, failures come as often as in Meta's Llama 3 report: 466 interruptions in 54
    days on 16,000 GPUs, 8.4 % of them by switches and cables, 1.7 % by network cards. The advice is recorded
    as a decision; `trimtab decisions` shows it, beside the losses by Young's rule without the fabric.
    """
    costs = {
        "saving": (saving, parse_duration),
        "noticing": (noticing, parse_duration),
        "restarting": (restarting, parse_duration),
        "stall": (stall, parse_duration),
        "survived": (survived, _share),
        "slowdown": (slowdown, _share),
    }
    report = fabric.Failures()
    counts = (interruptions, counted_for, counted_on)
    shares = (
        report.network_share if network_share is None else network_share,
        report.card_share if card_share is None else card_share,
    )
    if interruptions is not None and counted_for is not None and counted_on is not None:
        failures = fabric.Failures(interruptions, parse_duration(counted_for), counted_on, *shares, "given")
    elif counts == (None, None, None):
        failures = fabric.Failures(
            report.interruptions, report.seconds, report.devices, *shares, report.reason
        )
    else:
        raise BadInputError(
            "a rate is --interruptions, --counted-for and --counted-on: give all three or none"
        )
    question = fabric.Question(
        devices,
        fabric.catalog_price(device) if price is None else _range(price, "--price", parse_price),
        failures,
        interval=None if interval is None else parse_duration(interval),
        **{
            name: _range(text, f"--{name}", parse)
            for name, (text, parse) in costs.items()
            if text is not None
        },
    )
    advice = fabric.advise(question)
    decision, ledger = fabric.advice_decision(advice), LedgerQueue()
    ledger.record(decision)
    id = ledger.id_of(decision.id)
    if as_json:
        print(json.dumps({"decision": id or None, **to_plain(advice)}))
    else:
        print_advice(advice)
        print(f"decision {id}: {decision.reason}" if id else decision.reason)
    ledger.require()


def _range(text: str, option: str, parse: Callable[[str], float]) -> fabric.Assumption:
    """A number, or two with their geometric mean between; the arithmetic one where a range begins at 0."""
    low, dots, high = text.partition("..")
    if not dots:
        return fabric.Assumption.given(parse(text))
    ends = parse(low), parse(high)
    if ends[0] > ends[1]:
        raise BadInputError(
            f'{option} is "{text}"; a range goes from the smaller to the larger: {high}..{low}'
        )
    middle = math.sqrt(ends[0] * ends[1]) if ends[0] > 0.0 else ends[1] / 2.0
    return fabric.Assumption.given(min(max(middle, ends[0]), ends[1]), *ends)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInputError(f'"{text}" is not a share; write it like 0.9') from None


def print_advice(advice: fabric.Advice) -> None:
    """Print losses of a month with and without the fabric, the savings, and the assumptions."""
    question, without, with_fabric = advice.question, advice.without, advice.with_fabric
    interrupted, survived = (
        f"{count.value:.3g} ({count.low:.0f} to {count.high:.0f})"
        for count in (advice.interruptions, advice.survived)
    )
    say(
        f"{question.devices:,} devices, interrupted {interrupted} times a month; the fabric survives"
        f" {survived} of those. Ranges hold in 90 % of cases."
    )
    rows = [(name, show(without), show(with_fabric)) for name, show in _ROWS.items()]
    print_rows(("a month", ">without the fabric", ">with it"), rows)
    saved = f"{_span(advice.saved_dollars, _money)} and {_span(advice.saved_hours, _hours)}"
    say(f"saved: {saved} of the job a month", style="bold")
    say(f"nothing is saved if the fabric slows down steps by {_span(advice.break_even, _percent)}")
    say(
        f"without the fabric, half the best interval would cost {_money(advice.half_costs)} a month more,"
        f" twice the best {_money(advice.twice_costs)}"
    )
    _print_assumptions(advice)
    if question.interval is not None:
        best, best_with = (format_duration(losses.interval.best.value) for losses in (without, with_fabric))
        say(
            f"best would be {best} without the fabric and {best_with} with it; without the fabric"
            f" {format_duration(question.interval)} costs {_money(advice.used_costs)} a month more"
        )


def _print_assumptions(advice: fabric.Advice) -> None:
    """Assumptions, the most influential first, with the savings at both ends of their ranges."""
    question = advice.question
    table = new_table("assumption", "value", "savings at its ends", "source")
    swings = {swing.name: swing for swing in advice.sensitivities}
    for name in [*swings, *(name for name in fabric.ASSUMED if name not in swings)]:
        if name in fabric.ASSUMED:
            assumption: fabric.Assumption = getattr(question, name)
            formats = {"price": format_price, "survived": _percent, "slowdown": _percent}
            show, source = formats.get(name, format_duration), assumption.reason
            value = show(assumption.value) if assumption.low == assumption.high else _span(assumption, show)
        else:
            value, source = f"{question.failures.at_the_edge:.0f} counted", question.failures.reason
        swing = swings.get(name)
        ends = f"{_money(swing.at_low)} to {_money(swing.at_high)}" if swing else ""
        table.add_row(name, value, ends, source)
    print_table(table)


def _span(estimate: Estimate | fabric.Assumption, show: Callable[[float], str]) -> str:
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def _money(dollars: float) -> str:
    """Dollars with three digits, which is all that these figures hold."""
    return format_money(float(f"{dollars:.3g}")).removesuffix(".00")


def _hours(value: float) -> str:
    return f"{value:.3g} h"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _interval(losses: fabric.Losses) -> str:
    used, best = losses.interval.used, losses.interval.best
    return _span(best, format_duration) if used == best.value else format_duration(used)


_ROWS: dict[str, Callable[[fabric.Losses], str]] = {
    "between interruptions": lambda losses: _span(losses.between, format_duration),
    "between checkpoints": _interval,
    "  by Young's rule, by Daly's": lambda losses: ", ".join(
        format_duration(seconds) for seconds in (losses.interval.young, losses.interval.daly)
    ),
    "hours lost": lambda losses: _span(losses.hours, _hours),
    "dollars lost": lambda losses: _span(losses.dollars, _money),
    "  share of time: saving": lambda losses: _percent(losses.split.saving),
    "  noticing": lambda losses: _percent(losses.split.noticing),
    "  restarting": lambda losses: _percent(losses.split.restarting),
    "  work done twice": lambda losses: _percent(losses.split.redone),
}
