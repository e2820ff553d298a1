"""A plan as one HTML page that needs nothing else: graph, schedule and memory as pictures, reasons."""

from collections.abc import Sequence
from html import escape

from trimtab.core import format_bytes, format_duration, format_money
from trimtab.page import bullets, page, table
from trimtab.partition.explain import HOW_PLACED, Explained, explained, explained_placement, stage_labels
from trimtab.partition.pictures import graph_picture, memory_picture, placement_picture, schedule_picture
from trimtab.partition.plan import Forecast, Placement, Solution


def html_report(found: Solution, decision_id: str, assumed: Sequence[str] = ()) -> str:
    """The whole page."""
    graph, plan, forecast = found.graph, found.plan, found.forecast
    words, labels = explained(found), stage_labels(found.devices, plan)
    body = (
        f"{_placed(found, found.placement) if found.placement else ''}"
        f"{_summary(found, words, decision_id)}"
        f"<h2>The graph</h2>{graph_picture(graph, plan.stage_of(len(graph)), labels)}"
        "<h2>The schedule of one step</h2>"
        f"{schedule_picture(plan, forecast, labels, found.recipe.training)}"
        f"<h2>Memory</h2>{memory_picture(forecast, found.devices)}"
        f"<h2>Stages</h2>{_stages(words)}"
        f"<h2>Devices</h2>{_devices(words)}"
        f"{bullets('Why this cut', words.reasons)}"
        f"<h2>Other plans</h2>{_others(found, words)}"
        f"{bullets('CostAssumptions', assumed)}"
    )
    return page(f"Trimtab: {graph.name}", f"How to split {graph.name}", body)


def _placed(found: Solution, placed: Placement) -> str:
    """Section on the placement, where running branches side by side is better."""
    words = explained_placement(found)
    assert words is not None
    rows = [
        (
            row.device,
            row.layers_in_short(8),
            f"{row.parameters:,.0f}",
            format_bytes(row.used),
            format_bytes(row.free),
            f"{row.busy:.0%}",
        )
        for row in words.rows
    ]
    heads = ("Device", "Layers", "Parameters", "Used", "Free", "Busy")
    return (
        f"<h2>Branches side by side</h2><p><b>{escape(words.summary)}</b></p><p>{escape(HOW_PLACED)}</p>"
        f"{_named(words.figures)}{placement_picture(placed)}"
        f"{table(heads, rows, numbers=(2, 3, 4, 5))}<h2>In stages</h2>"
    )


def _named(figures: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in figures)
    return f"<table><tbody>{rows}</tbody></table>"


def _summary(found: Solution, words: Explained, decision_id: str) -> str:
    kept = f" Decision {escape(decision_id)}." if decision_id else ""
    return (
        f"<p><b>{escape(words.mix)}</b></p>{_named(words.figures)}"
        f"<p>{len(found.graph):,} operations, {found.graph.total_parameters:,.0f} parameters;"
        f" found by {escape(found.method)} in {format_duration(found.seconds)}.{kept}</p>"
    )


def _stages(words: Explained) -> str:
    return table(
        ("#", "Layers", "Devices", "Parameters", "Forward", "Backward", "Busy"),
        [
            (
                str(row.number),
                row.layers_in_short(5),
                row.devices,
                f"{row.parameters:,.0f}",
                format_duration(row.forward),
                format_duration(row.backward),
                f"{row.busy:.0%}",
            )
            for row in words.stages
        ],
        numbers=(0, 3, 4, 5, 6),
    )


def _devices(words: Explained) -> str:
    return table(
        ("Devices", "Stage", "Used on each", "Free on each", "Busy"),
        [
            (row.names, row.stages, format_bytes(row.used), format_bytes(row.free), f"{row.busy:.0%}")
            for row in words.devices
        ],
        numbers=(2, 3, 4),
    )


def _others(found: Solution, words: Explained) -> str:
    plans = [("this plan", found.forecast), *found.alternatives]
    verdicts = ["chosen", *(sentence.rpartition(", ")[2] for _, sentence in words.others)]
    return table(
        ("Plan", "Step", "Samples/s", "$ per million", "Idle memory", ""),
        [(name, *_numbers(other), words) for (name, other), words in zip(plans, verdicts, strict=True)],
        numbers=(1, 2, 3, 4),
    )


def _numbers(forecast: Forecast) -> tuple[str, str, str, str]:
    if not forecast.fits:
        return "–", "–", "–", "–"
    cost = forecast.cost_per_sample
    return (
        format_duration(forecast.seconds),
        f"{forecast.throughput:,.0f}" if forecast.throughput >= 1000 else f"{forecast.throughput:.4g}",
        "–" if cost is None else format_money(cost * 1e6),
        format_bytes(forecast.idle),
    )
