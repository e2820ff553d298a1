"""`trimtab decisions` and `trimtab outcome`: recorded decisions, and their measured results."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime

import typer

from trimtab.cli.place import is_here, place
from trimtab.cli.terminal import Json, print_rows, say
from trimtab.core import (
    Answer,
    BadInputError,
    Decision,
    Outcome,
    format_bytes,
    format_duration,
    format_energy,
    format_money,
    format_price,
    parse_duration,
    parse_money,
    to_plain,
)
from trimtab.serve import Service
from trimtab.store import compare


def decisions(
    id: str = typer.Argument(
        "ls", metavar="ID|ls", help="A decision's id or the start of it; `ls` lists all."
    ),
    limit: int = typer.Option(20, help="How many to list, newest first.", min=1),
    as_json: Json = False,
) -> None:
    """List the ledger's decisions, or show one: action, estimates, alternatives, reason, outcome."""
    with place() as at:
        if id == "ls":
            page = at.decisions.page(limit).items
            if as_json:
                print(json.dumps([to_plain(decision) for decision in page]))
            else:
                _print_list(page, {decision.id: at.decisions.outcomes(decision.id) for decision in page})
            return
        decision = at.decisions.get(id)
        outcomes = at.decisions.outcomes(decision.id)
    if as_json:
        print(json.dumps({"decision": to_plain(decision), "outcomes": to_plain(outcomes)}))
    else:
        _print_one(decision, outcomes)


def outcome(
    id: str = typer.Argument(..., help="The decision's id, or the start of it."),
    time: str | None = typer.Option(None, metavar="DURATION", help="How long the job took: 3h40m."),
    cost: str | None = typer.Option(None, metavar="DOLLARS", help="What it cost, in dollars: 12.10."),
    at: str | None = typer.Option(
        None,
        metavar="WHERE",
        help="For a prediction: the size or configuration it ran at, if not the recommended one: 1024MB.",
    ),
    note: str = typer.Option("", metavar="TEXT", help="A note to keep with the outcome."),
    trust: bool = typer.Option(
        False,
        "--trust",
        help="For a recommendation: learn from it, however far it is from the estimate.",
    ),
) -> None:
    """Record the measured result of a decision, and print how far off its estimates were.

    `trimtab models update` learns from the outcomes of predictions. The next recommendation for the workload
    learns from the outcomes of earlier ones; one that is far off only widens its range, unless --trust
    confirms it.
    """
    if at and (cost or not time):
        raise BadInputError("--at names the place of a --time; give it with --time and without --cost")
    measured = {"time": parse_duration(time)} if time else {}
    measured |= {"cost": parse_money(cost)} if cost else {}
    if not measured:
        raise BadInputError("an outcome needs --time, --cost or both")
    for name, value in measured.items():
        if value <= 0:
            raise BadInputError(f"--{name} is {value:g}; it must be above zero")
    with place() as there:
        decision = there.decisions.get(id)
        if at:
            from trimtab.predict import quantity_at

            measured = {quantity_at(decision, at): measured["time"]}
        result = there.decisions.record_outcome(decision.id, measured, note, trust)
        # A server looks for drift by itself, a moment later.
        drifts = there.decisions.note_outcome(result) if isinstance(there, Service) else ()
    say(f"recorded for decision {decision.id} ({decision.subject})")
    _print_outcome(decision, result)
    for drift in drifts:
        say(f"{drift.name}: {drift.sentence}; see trimtab models drift")
    if decision.kind == "predict":
        from trimtab.predict import believable, measured_after

        runs = measured_after(decision, result)
        if not all(believable(run) for run in runs):
            say("this is so far off that nothing is learned from it; if it was a mistake, record it again")
        elif runs and is_here():
            say("trimtab models update learns from it")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


_UNITS: dict[str, Callable[[float], str]] = {
    "time": format_duration,
    "energy": format_energy,
    "seconds_between_checkpoints": format_duration,
    "cost": format_money,
    "memory": format_bytes,
    "memory_bytes": format_bytes,
    "price_per_second": format_price,
}


_UNIT_IN_NAME = re.compile(r"^seconds_|_bytes$|_per_second$")


def _quantity(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    unit = _UNITS.get(name)
    return unit(value) if unit else f"{value:.4g}" if isinstance(value, float) else str(value)


def _action(answer: Answer | Decision) -> str:
    action = answer.action
    if "instance" not in action:
        values = {name: value for name, value in action.items() if value is not None}
        return ", ".join(
            f"{_UNIT_IN_NAME.sub('', name)}={_quantity(name, value)}" for name, value in values.items()
        )
    nodes = f" ×{action['nodes']}" if action.get("nodes") != 1 else ""
    spot = " spot" if action.get("spot") else ""
    spread = f", {action['parallel']}" if action.get("parallel") else ""
    return f"{action['cloud']} {action['region']} {action['instance']}{nodes}{spot}{spread}"


def _print_list(decisions: Sequence[Decision], outcomes: dict[str, tuple[Outcome, ...]]) -> None:
    if not decisions:
        say("no decisions yet; `trimtab recommend` makes one")
        return
    rows = []
    for decision in decisions:
        comparisons = [item for last in outcomes[decision.id][-1:] for item in compare(decision, last)]
        estimates = decision.estimates
        rows.append(
            (
                *(decision.id, decision.subject, _when(decision.created)),
                *(
                    _quantity(name, estimates[name].value) if name in estimates else ""
                    for name in ("time", "cost")
                ),
                "; ".join(f"{item.quantity} {item.error:+.0%}" for item in comparisons),
            )
        )
    heads = ("id", "about", "when", ">time", ">cost", "estimate was off by")
    optional = ("when", "estimate was off by", ">cost", ">time")
    print_rows(heads, rows, optional, notes=[_action(decision) for decision in decisions])


def _print_one(decision: Decision, outcomes: Sequence[Outcome]) -> None:
    say(f"decision {decision.id}, {_when(decision.created)}: {decision.kind} for {decision.subject}")
    say(f"  action       {_action(decision)}")
    for name, estimate in decision.estimates.items():
        low, high = _quantity(name, estimate.low), _quantity(name, estimate.high)
        say(f"  {name:12} {_quantity(name, estimate.value)} ({low} to {high}, {estimate.coverage:.0%})")
    say(f"  chosen by    {decision.chosen_by}")
    for side, answer in (("rule", decision.rule), ("model", decision.model)):
        if answer is None:
            say(f"  {side:12} none")
            continue
        figures = ", ".join(
            f"{name} {_quantity(name, estimate.value)}" for name, estimate in answer.estimates.items()
        )
        say(f"  {side:12} {answer.who}: {_action(answer)}{f' ({figures})' if figures else ''}")
    say(f"  reason       {decision.reason}")
    total = sum(part.value for part in decision.contributions) or 1.0
    for part in sorted(decision.contributions, key=lambda part: -part.value):
        say(f"    {part.name:28} {_quantity('time', part.value):>9}  {part.value / total:5.1%}")
    if decision.alternatives:
        say("  alternatives")
    for other in decision.alternatives:
        figures = ", ".join(_quantity(name, estimate.value) for name, estimate in other.estimates.items())
        say(f"    {_action(other)}{f': {figures}' if figures else ''}")
    if not outcomes:
        say(f"  outcome      not yet; trimtab outcome {decision.id} --time 3h40m --cost 12.10")
    for outcome in outcomes:
        say(f"  outcome      {_when(outcome.recorded)}{': ' + outcome.note if outcome.note else ''}")
        _print_outcome(decision, outcome)


def _print_outcome(decision: Decision, outcome: Outcome) -> None:
    comparisons = compare
    if decision.kind == "predict":
        from trimtab.predict import compared as comparisons

    for error in comparisons(decision, outcome):
        quantity = error.quantity.partition(" at ")[0]
        say(
            f"    {error.quantity}: estimated {_quantity(quantity, error.estimate.value)}, was"
            f" {_quantity(quantity, error.measured)}: {abs(error.error):.0%} too"
            f" {'high' if error.error > 0 else 'low'},"
            f" {'within' if error.held else 'outside'} the stated range"
        )
