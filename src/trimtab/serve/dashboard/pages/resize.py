"""Resize: limits and use of every container, how often it was throttled, and its memory traps."""

from collections.abc import Callable, Sequence

from trimtab.core import format_bytes
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Chart, Column, Table, Trace, axis, chart_text
from trimtab.serve.operations import PoolNow

_AGE = 1.0  # s; agents write that often
_DRAWN = 20


def share(part: float, total: float) -> float | None:
    """A part as a share of a total, at most 1; None if the total is 0."""
    return round(min(1.0, part / total), 3) if total > 0 else None


POOLS = (
    Column("Pool", lambda pool: pool.name),
    Column("CPUs", lambda pool: pool.cpus, "{:g}".format),
    Column("CPUs given", lambda pool: share(pool.given_cpus, pool.cpus), kind="share"),
    Column("Memory", lambda pool: pool.memory, format_bytes),
    Column("Memory given", lambda pool: share(pool.given_memory, pool.memory), kind="share"),
    Column("Containers", lambda pool: len(pool.containers), str),
)
CONTAINERS = (
    Column("Container", lambda row: row["path"]),
    Column("Pool", lambda row: row["pool"]),
    Column("CPU limit", lambda row: row["cpus"], "{:.3g}".format),
    Column("CPU use of it", lambda row: share(row["used_cpus"], row["cpus"]), kind="share"),
    Column("Memory limit", lambda row: row["memory"], format_bytes),
    Column("Memory use of it", lambda row: share(row["used_memory"], row["memory"]), kind="share"),
    Column("Throttles", lambda row: row["throttles"], str),
    Column("Traps", lambda row: row["traps"], str),
    Column("Refusals", lambda row: row["refusals"], str),
)


async def draw(visit: Visit, parameters: Parameters) -> None:
    how_to_fill = (
        "No agent sizes containers on this machine. Name a file of pools under pools in the settings, "
        "and containers are sized as they run; docs/guide/resize.md shows such a file:",
        ("trimtab up",),
    )
    await widgets.live(
        visit, "pools", lambda service: service.pools.list(), _draw, len, how_to_fill, age=_AGE
    )


def _draw(pools: tuple[PoolNow, ...]) -> Callable[[tuple[PoolNow, ...]], None]:
    widgets.heading("Pools")
    table = Table("Pools", POOLS, pools, filtered=False)
    widgets.heading("Limits and use")
    widgets.text("p", f"CPUs of the {_DRAWN} containers that use most; use beyond the limit has to wait.")
    chart = Chart("CPU limit and use of containers; the table below has the numbers", limits_chart(pools))
    widgets.heading("Containers")
    containers = Table("Containers", CONTAINERS, container_rows(pools))

    def show(pools: tuple[PoolNow, ...]) -> None:
        table.show(pools)
        chart.show(limits_chart(pools))
        containers.show(container_rows(pools))

    return show


def container_rows(pools: Sequence[PoolNow]) -> list[dict[str, object]]:
    return [container for pool in pools for container in pool.containers]


def limits_chart(pools: Sequence[PoolNow]) -> Trace:
    containers = [container for pool in pools for container in pool.containers]
    busiest = sorted(containers, key=lambda container: -container["used_cpus"])[:_DRAWN]
    names = [chart_text(row["path"].rpartition("/")[2] or row["path"]) for row in busiest]
    bars = [
        {"type": "bar", "name": name, "x": names, "y": [round(row[key], 4) for row in busiest]}
        for name, key in (("limit", "cpus"), ("use", "used_cpus"))
    ]
    return widgets.figure(bars, 320, axis("", type="category"), axis("CPUs"), barmode="group")


PAGE = DashboardPage("Resize", "/resize", "tune", "z", "pools", draw, fleet=True)
