"""A plan as a self-contained HTML page: graph, schedule and memory as pictures, reasons."""

from collections.abc import Sequence
from html import escape

from trimtab.core import format_bytes, format_duration, format_money
from trimtab.page import bullets, page, table
from trimtab.partition.explain import HOW_PLACED, Explained, explained, explained_placement, stage_labels
from trimtab.partition.pictures import graph_picture, memory_picture, placement_picture, schedule_picture
from trimtab.partition.plan import NodePlacement, Solution


def html_report(solution: Solution, decision_id: str, assumed: Sequence[str] = ()) -> str:
    graph, plan, forecast = solution.graph, solution.plan, solution.forecast
    words, labels = explained(solution), stage_labels(solution.devices, plan)
    device_rows = [
        (row.names, row.stages, format_bytes(row.used), format_bytes(row.free), f"{row.busy:.0%}")
        for row in words.devices
    ]
    kept = f" Decision {escape(decision_id)}." if decision_id else ""
    body = (
        f"{_placed(solution, solution.placement) if solution.placement else ''}"
        f"<p><b>{escape(words.mix)}</b></p>{_named(words.figures)}"
        f"<p>{len(graph):,} operations, {graph.total_parameters:,.0f} parameters;"
        f" found by {escape(solution.method)} in {format_duration(solution.seconds)}.{kept}</p>"
        f"<h2>The graph</h2>{graph_picture(graph, plan.stage_of(len(graph)), labels)}"
        "<h2>The schedule of one step</h2>"
        f"{schedule_picture(plan, forecast, labels, solution.recipe.training)}"
        f"<h2>Memory</h2>{memory_picture(forecast, solution.devices)}"
        f"<h2>Stages</h2>{_stages(words)}"
        f"<h2>Devices</h2>{table(_DEVICE_HEADS, device_rows, numbers=(2, 3, 4))}"
        f"{bullets('Why this cut', words.reasons)}"
        f"<h2>Other plans</h2>{_others(solution, words)}"
        f"{bullets('Assumptions', assumed)}"
    )
    return page(f"Trimtab: {graph.name}", f"How to split {graph.name}", body)


def _placed(solution: Solution, placed: NodePlacement) -> str:

    words = explained_placement(solution)
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


_DEVICE_HEADS = ("Devices", "Stage", "Used on each", "Free on each", "Busy")


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


def _others(solution: Solution, words: Explained) -> str:
    plans = [("this plan", solution.forecast), *solution.alternatives]
    verdicts = ["chosen", *(sentence.rpartition(", ")[2] for _, sentence in words.others)]
    rows = []
    for (name, plan), verdict in zip(plans, verdicts, strict=True):
        cost, rate, numbers = plan.cost_per_sample, plan.throughput, ["–"] * 4
        if plan.fits:
            numbers = [
                format_duration(plan.seconds),
                f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}",
                "–" if cost is None else format_money(cost * 1e6),
                format_bytes(plan.idle),
            ]
        rows.append((name, *numbers, verdict))
    return table(
        ("Plan", "Step", "Samples/s", "$ per million", "Idle memory", ""), rows, numbers=(1, 2, 3, 4)
    )
