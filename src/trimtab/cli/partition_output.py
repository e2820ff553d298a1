"""What `trimtab partition` prints: a plan as tables and sentences, or as one JSON object."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from trimtab.partition import Explained, ExplainedPlacement, Forecast, RunReport, Solution


def print_plan(found: "Solution", assumed: Sequence[str], explain: bool) -> None:
    """The plan on the terminal."""
    from rich.console import Console

    from trimtab.partition import explained, explained_placement

    console, words, placed = Console(highlight=False), explained(found), explained_placement(found)
    _say(console, _header(found))
    if placed is not None:
        _print_placement(console, placed, explain)
    _say(console, f"{'in stages' if placed else 'it fits'}: {words.mix}")
    for table in (_stages(words, explain), _devices(words)):
        console.print()
        console.print(table)
    console.print()
    for name, value in words.figures:
        _say(console, f"{name:12} {value}")
    _say(console, "\nwhy this cut")
    for line in words.reasons:
        _say(console, f"  {line}")
    if words.others:
        _say(console, "other plans")
    for name, line in words.others:
        _say(console, f"  {name}: {line}")
    for line in assumed:
        _say(console, f"assumed: {line}")


def _print_placement(console: "Console", words: "ExplainedPlacement", explain: bool) -> None:
    """The placement, and what goes by it."""
    from trimtab.partition import HOW_PLACED

    _say(console, f"it fits: {words.summary}")
    _say(console, f"{HOW_PLACED}\n")
    console.print(_placed_devices(words, explain))
    console.print()
    for name, value in words.figures:
        _say(console, f"{name:12} {value}")
    _say(console, "--device-map goes by this; -o, --run and --torchrun by the plan in stages\n")


def print_run(found: "Solution", ran: "RunReport", here: float | None) -> None:
    """What training with the plan showed, `here` what was to expect of it by this machine's own speed."""
    from rich.console import Console

    from trimtab.core import format_duration

    console = Console(highlight=False)
    verdict = "equal" if ran.equal else "NOT equal"
    _say(console, f"trained {len(ran.losses)} steps in {len(ran.ranks)} processes and in one piece")
    _say(console, f"  losses {' '.join(f'{loss:.6g}' for loss in ran.losses)}")
    _say(console, f"  {verdict}: {ran.difference:.1e} apart at most, weights {ran.weights:.1e}")
    if found.placement is not None:
        _say(console, "  by the plan in stages, not the placement")
    _say(console, f"  a step took {format_duration(ran.seconds)}")
    if here is not None:
        _say(console, f"  predicted before the run: {_beside(found.forecast.seconds, ran.seconds)}")
        _say(
            console,
            f"  predicted from the whole model's speed and the link here: {_beside(here, ran.seconds)}",
        )
    for note in ran.notes:
        _say(console, f"  {note}")


def _beside(predicted: float, measured: float) -> str:
    from trimtab.core import format_duration

    return f"{format_duration(predicted)}, {predicted / measured - 1.0:+.0%}"


@contextmanager
def working() -> Iterator[Callable[[str, int, int], None]]:
    """A line on the terminal that says what is being done; nothing where nobody looks."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda doing, done, of: None
        return
    with console.status("reading") as line:
        yield lambda doing, done, of: line.update(f"{doing}{f', {done} of {of}' if of else ''}")


def plan_as_json(
    found: "Solution",
    decision_id: str,
    assumed: Sequence[str],
    ran: "RunReport | None",
    here: float | None,
) -> dict[str, Any]:
    """The same as plain data."""
    from trimtab.core import to_plain
    from trimtab.partition import explained

    words = explained(found)
    return {
        "decision": decision_id or None,
        "model": found.graph.name,
        "nodes": len(found.graph),
        "parameters": found.graph.total_parameters,
        "method": found.method,
        "solver_seconds": found.seconds,
        "recipe": to_plain(found.recipe),
        "devices": to_plain(found.devices.devices),
        "mix": words.mix,
        "plan": to_plain(found.plan),
        "stages": to_plain(words.stages),
        "forecast": _forecast(found.forecast),
        "placement": _placement(found),
        "alternatives": [{"name": name, **_forecast(other)} for name, other in found.alternatives],
        "reasons": [*words.reasons, *(f"{name}: {line}" for name, line in words.others)],
        "assumed": list(assumed),
        "run": None if ran is None else {**to_plain(ran), "equal": ran.equal, "predicted_here": here},
    }


def _placement(found: "Solution") -> dict[str, Any] | None:
    """Where branches run side by side; the plan beside it is in stages."""
    from trimtab.core import to_plain
    from trimtab.partition import explained_placement

    placed, words = found.placement, explained_placement(found)
    if placed is None or words is None:
        return None
    return {
        "latency": placed.latency,
        "latency_in_stages": found.forecast.latency,
        "latency_alone": placed.alone,
        "fastest": placed.devices[placed.fastest].name,
        "alone_fits": placed.alone_fits,
        "idle": placed.idle,
        "loss": placed.loss,
        "device_of": list(placed.device_of),
        "devices": to_plain(words.rows),
    }


def _forecast(forecast: "Forecast") -> dict[str, Any]:
    """A forecast without what JSON cannot hold: where a link is missing, a step never ends."""
    from trimtab.core import to_plain

    plain = {**to_plain(forecast), "throughput": forecast.throughput}
    plain["cost_per_sample"] = forecast.cost_per_sample
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in plain.items()
    }


def _say(console: "Console", line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _header(found: "Solution") -> str:
    recipe = found.recipe
    use = f"{recipe.optimizer}, {recipe.precision}" if recipe.training else f"inference, {recipe.precision}"
    return (
        f"{found.graph.name}: {len(found.graph):,} operations, {_parameters(found.graph.total_parameters)}"
        f" parameters; {recipe.batch:,} samples a step, {use}; {len(found.devices)} devices"
    )


def _stages(words: "Explained", explain: bool) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core import format_duration

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", justify="right")
    table.add_column("layers", overflow="fold")
    table.add_column("devices", overflow="fold")
    for name in ("parameters", "forward", "backward", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in words.stages:
        table.add_row(
            str(row.number),
            escape(row.layers_in_short(len(row.layers) if explain else 3)),
            escape(row.devices),
            _parameters(row.parameters),
            format_duration(row.forward),
            format_duration(row.backward),
            f"{row.busy:.0%}",
        )
    return table


def _devices(words: "Explained") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core import format_bytes

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("memory of", overflow="fold")
    for name in ("stage", "used", "free", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in words.devices:
        used, free = format_bytes(row.used), format_bytes(row.free)
        table.add_row(escape(row.names), row.stages, used, free, f"{row.busy:.0%}")
    return table


def _placed_devices(words: "ExplainedPlacement", explain: bool) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core import format_bytes

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("device")
    table.add_column("layers", overflow="fold")
    for name in ("parameters", "used", "free", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in words.rows:
        layers = row.layers_in_short(len(row.layers) if explain else 4)
        used, free = format_bytes(row.used), format_bytes(row.free)
        weights, busy = _parameters(row.parameters), f"{row.busy:.0%}"
        table.add_row(escape(row.device), escape(layers), weights, used, free, busy)
    return table


def _parameters(count: float) -> str:
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g} {letter}"
    return f"{count:.0f}"
