"""What `trimtab recommend` prints of the catalog's configurations: a table and why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab.recommend import Recommendation, Row


def print_recommendation(
    result: "Recommendation", decision_id: str, top: int, explained: "Row | None", written: list[str]
) -> None:
    """Everything a person wants to know; `written` are lines about files."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from trimtab.recommend import explain_row

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("configuration", overflow="fold")
    table.add_column("devices", no_wrap=True)
    for name in ("time", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by", no_wrap=True)
    table.add_column("evidence", no_wrap=True)
    for r in result.rows[:top]:
        table.add_row(*_cells(result, r))
    console.print(
        f"[bold]{escape(result.profile.workload.name)}[/bold]: {result.work.source};"
        f" {result.considered:,} configurations by {result.request.objective}"
    )
    console.print(table)
    for dropped in result.dropped:
        console.print(f"[dim]left out {dropped.count:,}: {escape(dropped.reason)}[/dim]")
    for note in result.notes:
        console.print(f"[dim]note: {escape(note)}[/dim]")
    if explained is not None:
        console.print()
        for line in explain_row(result, explained):
            console.print(line, markup=False)
    for line in written:
        console.print(line, markup=False, soft_wrap=True)
    if decision_id:
        console.print(
            f"decision {decision_id}: trimtab decisions {decision_id}", markup=False, soft_wrap=True
        )


def _cells(result: "Recommendation", r: "Row") -> tuple[str, ...]:
    from trimtab.core import format_duration, format_money, format_price
    from trimtab.recommend import bound, evidence

    c, time, cost, by = r.configuration, r.time, r.cost, evidence(r)
    batch = f" b{c.batch_size}" if result.request.batch_sizes else ""
    nodes = f" ×{c.nodes}" if c.nodes > 1 else ""
    devices = f"{c.devices}×{c.offer.accelerator}" if c.offer.accelerator else f"{c.offer.vcpus:g} vCPU"
    return (
        str(r.rank),
        f"{c.offer.instance}{nodes}{batch}\n"
        f"[dim]{c.offer.cloud} {c.offer.region}{', spot' if c.spot else ''}[/dim]",
        f"{devices}\n[dim]{format_price(c.price)}[/dim]",
        f"{format_duration(time.value)}\n[dim]{format_duration(time.low)}–{format_duration(time.high)}[/dim]",
        f"{format_money(cost.value)}\n[dim]{format_money(cost.low)}–{format_money(cost.high)}[/dim]",
        bound(r).removesuffix("-bound"),
        f"{by.time}\n[dim]memory: {by.memory}[/dim]",
    )
