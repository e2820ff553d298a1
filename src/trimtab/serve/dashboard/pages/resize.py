"""Resize: what every container may use and uses, how often it was throttled, and its memory traps."""

from collections.abc import Sequence

from trimtab.core import format_bytes
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Chart,
    Column,
    Rows,
    Table,
    Trace,
    axis,
    chart_text,
    empty,
    figure,
    follow,
    heading,
    reload_when,
    text,
)
from trimtab.serve.operations import PoolNow

_AGE = 1.0  # s; agents write that often
_DRAWN = 20
_POOLS = (
    Column("id", "Pool"),
    Column("cpus", "CPUs", "number"),
    Column("cpus_given", "CPUs given", "share"),
    Column("memory", "Memory", "number"),
    Column("memory_given", "Memory given", "share"),
    Column("containers", "Containers", "number"),
)
_CONTAINERS = (
    Column("id", "Container"),
    Column("pool", "Pool"),
    Column("cpus", "CPU limit", "number"),
    Column("cpus_used", "CPU use of it", "share"),
    Column("memory", "Memory limit", "number"),
    Column("memory_used", "Memory use of it", "share"),
    Column("throttles", "Throttles", "number"),
    Column("traps", "Traps", "number"),
    Column("refusals", "Refusals", "number"),
)


async def draw(visit: Visit, asked: Asked) -> None:
    """The page."""

    async def found() -> tuple[PoolNow, ...]:
        return await visit.ask("pools", lambda s: s.pools.list(), age=_AGE)

    pools = await found()
    if not pools:
        empty(
            "No agent sizes containers on this machine. Give it pools, and containers are sized as they run:",
            ("trimtab agent --pools pools.yaml", "trimtab up --pools pools.yaml"),
        )
        reload_when(visit, (), found)
        return
    heading("Pools")
    table = Table("Pools", _POOLS, pool_rows(pools), filtered=False)
    heading("Limits and use")
    text("p", f"CPUs of the {_DRAWN} containers that use most; what is beyond the limit waits.")
    chart = Chart("CPU limit and use of containers; the table below has the numbers", limits_chart(pools))
    heading("Containers")
    containers = Table("Containers", _CONTAINERS, container_rows(pools))

    async def again() -> None:
        pools = await found()
        table.show(pool_rows(pools))
        chart.show(limits_chart(pools))
        containers.show(container_rows(pools))

    follow(visit, (), again, age=_AGE)


def pool_rows(pools: Sequence[PoolNow]) -> Rows:
    """A row for each pool."""
    return [
        {
            "id": pool.name,
            "cpus": f"{pool.cpus:g}",
            "cpus#": pool.cpus,
            "cpus_given": share(pool.given_cpus, pool.cpus),
            "memory": format_bytes(pool.memory),
            "memory#": pool.memory,
            "memory_given": share(pool.given_memory, pool.memory),
            "containers": str(len(pool.containers)),
            "containers#": len(pool.containers),
        }
        for pool in pools
    ]


def container_rows(pools: Sequence[PoolNow]) -> Rows:
    """A row for each container."""
    rows: Rows = []
    for pool in pools:
        for each in pool.containers:
            counts = {name: str(each[name]) for name in ("throttles", "traps", "refusals")}
            order = {f"{name}#": each[name] for name in ("throttles", "traps", "refusals")}
            rows.append(
                {
                    "id": each["path"],
                    "pool": pool.name,
                    "cpus": f"{each['cpus']:.3g}",
                    "cpus#": each["cpus"],
                    "cpus_used": share(each["used_cpus"], each["cpus"]),
                    "memory": format_bytes(each["memory"]),
                    "memory#": each["memory"],
                    "memory_used": share(each["used_memory"], each["memory"]),
                    **counts,
                    **order,
                }
            )
    return rows


def limits_chart(pools: Sequence[PoolNow]) -> Trace:
    """Limit and use of the busiest."""
    every = [each for pool in pools for each in pool.containers]
    busiest = sorted(every, key=lambda each: -each["used_cpus"])[:_DRAWN]
    names = [chart_text(each["path"].rpartition("/")[2] or each["path"]) for each in busiest]
    bars = [
        {"type": "bar", "name": name, "x": names, "y": [round(each[key], 4) for each in busiest]}
        for name, key in (("limit", "cpus"), ("use", "used_cpus"))
    ]
    return figure(bars, 320, axis("", type="category"), axis("CPUs"), barmode="group")


def share(part: float, whole: float) -> float | None:
    """Of a whole, at most all of it; None where there is no whole."""
    return round(min(1.0, part / whole), 3) if whole > 0 else None


PAGE = Page("Resize", "/resize", "tune", "z", "pools", draw, fleet=True)
