"""Advice on the terminal: a month with and without the fabric, and where the numbers come from."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from trimtab.core import Estimate
    from trimtab.fabric import Advice, Assumption, Losses


def print_advice(advice: "Advice") -> None:
    """A table of a month with and without the fabric, what is saved, and why."""
    from rich.console import Console
    from rich.table import Table

    from trimtab.core import format_duration

    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("a month", no_wrap=True)
    table.add_column("without the fabric", justify="right", no_wrap=True)
    table.add_column("with it", justify="right", no_wrap=True)
    for name, show in _ROWS:
        table.add_row(name, show(advice.without), show(advice.with_fabric))
    question = advice.question
    console.print(
        f"{question.devices:,} devices, interrupted {_counts(advice.interruptions)} times a month; "
        f"the fabric survives {_counts(advice.survived)} of those. Ranges hold in 90 % of cases."
    )
    console.print(table)
    console.print(
        f"saved: {_with_range(advice.saved_dollars, _money)} and "
        f"{_with_range(advice.saved_hours, _hours)} of the job a month",
        style="bold",
    )
    console.print(
        f"nothing is saved if the fabric slows down steps by {_with_range(advice.break_even, _percent)}"
    )
    console.print(
        f"without the fabric, half the best interval would cost {_money(advice.half_costs)} a month more, "
        f"twice the best {_money(advice.twice_costs)}"
    )
    _print_reasons(console, advice)
    if question.interval is not None:
        console.print(
            f"best would be {format_duration(advice.without.interval.best.value)} without the fabric and "
            f"{format_duration(advice.with_fabric.interval.best.value)} with it; without the fabric "
            f"{format_duration(question.interval)} costs {_money(advice.used_costs)} a month more"
        )


def _print_reasons(console: "Console", advice: "Advice") -> None:
    """Where the numbers come from, the weightiest first, and what is saved at both ends of their ranges."""
    from rich.table import Table

    from trimtab.fabric import ASSUMED

    question = advice.question
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "taken as", "saved at its ends", "why"):
        table.add_column(name, overflow="fold")
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
    console.print(table)


def _taken(name: str, assumption: "Assumption") -> str:
    from trimtab.core import format_duration, format_price

    show = {"price": format_price, "survived": _percent, "slowdown": _percent}.get(name, format_duration)
    if assumption.low == assumption.high:
        return show(assumption.value)
    return f"{show(assumption.value)} ({show(assumption.low)} to {show(assumption.high)})"


def _with_range(estimate: "Estimate", show: Callable[[float], str]) -> str:
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def _counts(estimate: "Estimate") -> str:
    return f"{estimate.value:.3g} ({estimate.low:.0f} to {estimate.high:.0f})"


def _money(dollars: float) -> str:
    """Three digits are more than these figures hold."""
    from trimtab.core import format_money

    return format_money(float(f"{dollars:.3g}")).removesuffix(".00")


def _hours(value: float) -> str:
    return f"{value:.3g} h"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _durations(estimate: "Estimate") -> str:
    from trimtab.core import format_duration

    return _with_range(estimate, format_duration)


def _rules(losses: "Losses") -> str:
    from trimtab.core import format_duration

    return f"{format_duration(losses.interval.young)}, {format_duration(losses.interval.daly)}"


def _used(losses: "Losses") -> str:
    from trimtab.core import format_duration

    interval = losses.interval
    return (
        _durations(interval.best) if interval.used == interval.best.value else format_duration(interval.used)
    )


def _dollars(losses: "Losses") -> str:
    return _with_range(losses.dollars, _money)


_ROWS: tuple[tuple[str, "Callable[[Losses], str]"], ...] = (
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
