"""`trimtab decisions` and `trimtab outcome`: what was decided, and how it turned out."""

import json
from datetime import datetime
from typing import Annotated

import typer
from rich.markup import escape

from trimtab.cli.options import Json
from trimtab.cli.place import is_here, place
from trimtab.cli.terminal import new_table, print_table, say
from trimtab.core import (
    Answer,
    BadInputError,
    Decision,
    Outcome,
    format_bytes,
    format_duration,
    format_money,
    parse_duration,
    parse_money,
    to_plain,
)
from trimtab.serve import Service
from trimtab.store import compare


def decisions(
    id: Annotated[str | None, typer.Argument(help="A decision's id, or the start of it.")] = None,
    limit: Annotated[int, typer.Option(help="How many to list, newest first.", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """List the ledger's decisions, or show one: action, estimates, alternatives, reason, outcome."""
    with place() as at:
        if id is None:
            found = at.decisions.page(limit).items
            if as_json:
                print(json.dumps([to_plain(d) for d in found]))
            else:
                _print_list(found, {d.id: at.decisions.outcomes(d.id) for d in found})
            return
        one = at.decisions.get(id)
        happened = at.decisions.outcomes(one.id)
    if as_json:
        print(json.dumps({"decision": to_plain(one), "outcomes": to_plain(happened)}))
        return
    _print_one(one, happened)


def outcome(
    id: Annotated[str, typer.Argument(help="The decision's id, or the start of it.")],
    time: Annotated[str | None, typer.Option(help="How long the job took: 3h40m.")] = None,
    cost: Annotated[str | None, typer.Option(help="What it cost: 12.10.")] = None,
    at: Annotated[
        str | None, typer.Option(help="Of a prediction: where it ran, if not at the chosen place: 1024MB.")
    ] = None,
    note: Annotated[str, typer.Option(help="Anything worth remembering.")] = "",
) -> None:
    """Record what really happened after a decision; it then shows how far off it was.

    `trimtab models update` learns from the outcomes of predictions.
    """
    measured: dict[str, float] = {}
    if time:
        measured["time"] = parse_duration(time)
    if at and (cost or not time):
        raise BadInputError("--at says where a --time was measured, and goes with nothing else")
    if cost:
        measured["cost"] = parse_money(cost)
    if not measured:
        raise BadInputError("an outcome needs --time, --cost or both")
    if any(value <= 0 for value in measured.values()):
        raise BadInputError("a job takes some time and costs something; --time and --cost must be above zero")
    with place() as there:
        one = there.decisions.get(id)
        if at:
            from trimtab.predict import quantity_at

            measured = {quantity_at(one, at): measured["time"]}
        happened = there.decisions.record_outcome(one.id, measured, note)
        # A server notes it by itself, a moment later.
        found = there.decisions.note_outcome(happened) if isinstance(there, Service) else ()
    say(f"recorded for decision {one.id} ({one.subject})")
    _print_outcome(one, happened)
    for each in found:
        say(f"{each.name}: {each.sentence}; see trimtab models drift")
    _print_next(one, happened)


def _print_next(one: Decision, happened: Outcome) -> None:
    """Of a prediction: what can be learned from its outcome."""
    if one.kind != "predict":
        return
    from trimtab.predict import believable, measured_after

    measured = measured_after(one, happened)
    if not all(believable(each) for each in measured):
        slip = "that is so far off that nothing is learned from it; if it was a slip, record it again"
        say(slip)
    elif measured and is_here():
        say("trimtab models update learns from it")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _quantity(name: str, value: float) -> str:
    show = {"time": format_duration, "cost": format_money, "memory": format_bytes}.get(name)
    return show(value) if show else f"{value:.4g}"


def _action(answer: Answer | Decision) -> str:
    a = answer.action
    if "instance" not in a:
        return ", ".join(f"{k}={v}" for k, v in a.items())
    nodes = f" ×{a['nodes']}" if a.get("nodes") != 1 else ""
    return f"{a['cloud']} {a['region']} {a['instance']}{nodes}{' spot' if a.get('spot') else ''}"


def _answer(answer: Answer) -> str:
    """Who would do what, and expects what of it."""
    shown = ", ".join(f"{name} {_quantity(name, e.value)}" for name, e in answer.estimates.items())
    return f"{answer.who}: {_action(answer)}{f' ({shown})' if shown else ''}"


def _print_list(found: tuple[Decision, ...], outcomes: dict[str, tuple[Outcome, ...]]) -> None:
    if not found:
        say("no decisions yet; `trimtab recommend` makes one")
        return
    table = new_table("<id", "about, when", "action", "<time", "<cost", "turned out")
    for d in found:
        off = "; ".join(f"{c.quantity} {c.error:+.0%}" for o in outcomes[d.id][-1:] for c in compare(d, o))
        shown = [
            _quantity(name, d.estimates[name].value) if name in d.estimates else ""
            for name in ("time", "cost")
        ]
        table.add_row(
            d.id, f"{escape(d.subject)}\n[dim]{_when(d.created)}[/dim]", escape(_action(d)), *shown, off
        )
    print_table(table)


def _print_one(one: Decision, happened: tuple[Outcome, ...]) -> None:
    say(f"decision {one.id}, {_when(one.created)}: {one.kind} for {one.subject}")
    say(f"  action       {_action(one)}")
    for name, guess in one.estimates.items():
        low, high = _quantity(name, guess.low), _quantity(name, guess.high)
        say(f"  {name:12} {_quantity(name, guess.value)} ({low} to {high}, {guess.coverage:.0%})")
    say(f"  chosen by    {one.chosen_by}")
    say(f"  rule         {_answer(one.rule)}")
    say(f"  model        {_answer(one.model) if one.model else 'none was asked'}")
    say(f"  reason       {one.reason}")
    total = sum(c.value for c in one.contributions)
    for c in sorted(one.contributions, key=lambda c: -c.value):
        say(f"    {c.name:28} {_quantity('time', c.value):>9}  {c.value / total:5.1%}")
    if one.alternatives:
        say("  alternatives")
    for other in one.alternatives:
        shown = ", ".join(f"{_quantity(n, e.value)}" for n, e in other.estimates.items())
        say(f"    {_action(other)}: {shown}")
    if not happened:
        say(f"  outcome      not yet; trimtab outcome {one.id} --time 3h40m --cost 12.10")
    for o in happened:
        say(f"  outcome      {_when(o.recorded)}{': ' + o.note if o.note else ''}")
        _print_outcome(one, o)


def _print_outcome(one: Decision, happened: Outcome) -> None:
    comparing = compare
    if one.kind == "predict":
        from trimtab.predict import compared as comparing

    for c in comparing(one, happened):
        quantity = c.quantity.partition(" at ")[0]
        verdict = "within" if c.held else "outside"
        direction = "high" if c.error > 0 else "low"
        say(
            f"    {c.quantity}: estimated {_quantity(quantity, c.estimate.value)}, was"
            f" {_quantity(quantity, c.measured)}: {abs(c.error):.0%} too {direction},"
            f" {verdict} the stated range"
        )
