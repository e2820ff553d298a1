"""`trimtab fabric advise`: how often to save, and what surviving dead links is worth."""

import json
import math
from collections.abc import Callable
from typing import Annotated

import typer

from trimtab.cli.options import Json, panel
from trimtab.cli.place import LedgerQueue
from trimtab.cli.terminal import new_table, print_table, say
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
from trimtab.fabric import (
    ASSUMED,
    Advice,
    Assumption,
    Failures,
    Losses,
    Question,
    advice_decision,
    advise,
    catalog_price,
)

_costs = panel("What a failure costs: 30s, or a range, 20s..60s")
_counted = panel("What was counted")


def advise_command(
    devices: Annotated[int, typer.Argument(metavar="DEVICES", help="Of the job.", show_default=False)],
    device: Annotated[str, typer.Option(help="Which accelerator, for its price in the catalog.")] = "H100",
    price: Annotated[str | None, typer.Option(help="Of one device, instead: $2.50/h or 2..3.")] = None,
    interval: Annotated[
        str | None, typer.Option(help="Between checkpoints, where it is not the best one.")
    ] = None,
    saving: Annotated[str | None, _costs(help="A checkpoint.")] = None,
    noticing: Annotated[str | None, _costs(help="Until the job knows that it is dead.")] = None,
    restarting: Annotated[str | None, _costs(help="Up to the first step.")] = None,
    stall: Annotated[str | None, _costs(help="Of a failure that is survived.")] = None,
    survived: Annotated[str | None, _costs(help="Share of failures at the edge: 0.9 or 0.5..1.")] = None,
    slowdown: Annotated[str | None, _costs(help="Of every step, as a share: 0.001.")] = None,
    interruptions: Annotated[float | None, _counted(help="Of jobs, in all.")] = None,
    counted_for: Annotated[str | None, _counted(help="Such as 54d.")] = None,
    counted_on: Annotated[float | None, _counted(help="Devices.")] = None,
    network_share: Annotated[float | None, _counted(help="Due to switches and cables.")] = None,
    card_share: Annotated[float | None, _counted(help="Due to network cards.")] = None,
    as_json: Json = False,
) -> None:
    """Say how often to save checkpoints, and what a job loses a month with and without the fabric.

    `trimtab fabric advise 1024 --saving 30s --restarting 2m..5m`

    Without counts of your own, failures come as often as in Meta's Llama 3 report: 466 interruptions in 54
    days on 16,000 GPUs, 8.4 % of them by switches and cables, 1.7 % by network cards. The advice is written
    down as a decision; `trimtab decisions` shows it, beside what Young's rule without the fabric would lose.
    """
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
    made, ledger = advice_decision(advice), LedgerQueue()
    ledger.record(made)
    decision = ledger.id_of(made.id)
    if as_json:
        print(json.dumps({"decision": decision or None, **to_plain(advice)}))
    else:
        print_advice(advice)
        print(f"decision {decision}: {made.reason}" if decision else made.reason)
    ledger.require()


def _range(text: str | None, option: str, parse: Callable[[str], float]) -> Assumption | None:
    """A number, or two with their geometric mean between; the plain one where a range begins at 0."""
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
) -> Failures:
    """Counts belong together; shares may be one's own beside the report's counts."""
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


def print_advice(advice: Advice) -> None:
    """A table of a month with and without the fabric, what is saved, and why."""
    table = new_table("<a month", ">without the fabric", ">with it")
    for name, show in _ROWS:
        table.add_row(name, show(advice.without), show(advice.with_fabric))
    question = advice.question
    say(
        f"{question.devices:,} devices, interrupted {_counts(advice.interruptions)} times a month; "
        f"the fabric survives {_counts(advice.survived)} of those. Ranges hold in 90 % of cases."
    )
    print_table(table)
    say(
        f"saved: {_with_range(advice.saved_dollars, _money)} and "
        f"{_with_range(advice.saved_hours, _hours)} of the job a month",
        style="bold",
    )
    say(f"nothing is saved if the fabric slows down steps by {_with_range(advice.break_even, _percent)}")
    say(
        f"without the fabric, half the best interval would cost {_money(advice.half_costs)} a month more, "
        f"twice the best {_money(advice.twice_costs)}"
    )
    _print_reasons(advice)
    if question.interval is not None:
        say(
            f"best would be {format_duration(advice.without.interval.best.value)} without the fabric and "
            f"{format_duration(advice.with_fabric.interval.best.value)} with it; without the fabric "
            f"{format_duration(question.interval)} costs {_money(advice.used_costs)} a month more"
        )


def _print_reasons(advice: Advice) -> None:
    """Where the numbers come from, the weightiest first, and what is saved at both ends of their ranges."""
    question = advice.question
    table = new_table("what", "taken as", "saved at its ends", "why")
    swings = {each.name: each for each in advice.sensitivities}
    constant = [name for name in ASSUMED if name not in swings]
    for name in [*swings, *constant]:
        swing = swings.get(name)
        if name in ASSUMED:
            assumption: Assumption = getattr(question, name)
            taken, reason = _taken(name, assumption), assumption.reason
        else:
            taken, reason = f"{question.failures.at_the_edge:.0f} counted", question.failures.reason
        ends = f"{_money(swing.at_low)} to {_money(swing.at_high)}" if swing else ""
        table.add_row(name, taken, ends, reason)
    print_table(table)


def _taken(name: str, assumption: Assumption) -> str:
    show = {"price": format_price, "survived": _percent, "slowdown": _percent}.get(name, format_duration)
    if assumption.low == assumption.high:
        return show(assumption.value)
    return f"{show(assumption.value)} ({show(assumption.low)} to {show(assumption.high)})"


def _with_range(estimate: Estimate, show: Callable[[float], str]) -> str:
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def _counts(estimate: Estimate) -> str:
    return f"{estimate.value:.3g} ({estimate.low:.0f} to {estimate.high:.0f})"


def _money(dollars: float) -> str:
    """Three digits are more than these figures hold."""
    return format_money(float(f"{dollars:.3g}")).removesuffix(".00")


def _hours(value: float) -> str:
    return f"{value:.3g} h"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _durations(estimate: Estimate) -> str:
    return _with_range(estimate, format_duration)


def _rules(losses: Losses) -> str:
    return f"{format_duration(losses.interval.young)}, {format_duration(losses.interval.daly)}"


def _used(losses: Losses) -> str:
    interval = losses.interval
    return (
        _durations(interval.best) if interval.used == interval.best.value else format_duration(interval.used)
    )


def _dollars(losses: Losses) -> str:
    return _with_range(losses.dollars, _money)


_ROWS: tuple[tuple[str, Callable[[Losses], str]], ...] = (
    ("between interruptions", lambda losses: _durations(losses.between)),
    ("between checkpoints", _used),
    ("  by Young's rule, by Daly's", _rules),
    ("hours lost", lambda losses: _with_range(losses.hours, _hours)),
    ("dollars lost", _dollars),
    ("  share of time: saving", lambda losses: _percent(losses.split.saving)),
    ("  noticing", lambda losses: _percent(losses.split.noticing)),
    ("  restarting", lambda losses: _percent(losses.split.restarting)),
    ("  work done twice", lambda losses: _percent(losses.split.redone)),
)
