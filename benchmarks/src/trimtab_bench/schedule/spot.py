"""Spot on the Philly jobs: the same deadlines with nodes on demand only, and with as many spot nodes beside.

Deadlines are soft: duration times 3 to 8, and half an hour. Spot nodes are taken back once in twenty hours on
average, and there are others ten minutes later.
"""

from dataclasses import replace

from trimtab.schedule import Market
from trimtab.schedule.simulation.faults import FaultRates, RandomFaults
from trimtab_bench.schedule.deadlines import with_deadlines
from trimtab_bench.schedule.stage import Stage

ON_DEMAND = 3.06
"""Dollars per accelerator and hour: a V100 on EC2's list (p3)."""
SPOT = 0.30
"""Of that, assumed; price lists of 2026 have spot at 0.11 to 0.6 of on-demand for V100, T4 and A100."""
RECLAIMS = 0.05 / 3600.0
REFILL = 600.0
THRIFT = 10_000.0
"""Seconds somebody would wait to save a dollar: a V100 on demand costs 6 seconds a second more than spot."""
_FACTORS, _SPARE = (3.0, 8.0), 1800.0


def spot_figures(stage: Stage, seed: int) -> dict[str, dict[str, float]]:
    """Dollars, deadlines met and hours on demand only, with spot beside, and how much cheaper that is."""
    asked = with_deadlines(stage, seed, _FACTORS, _SPARE)
    (node,) = stage.groups
    demand = replace(node, name="on-demand", price=node.gpus * ON_DEMAND / 3600.0)
    spot = replace(node, name="spot", price=SPOT * demand.price, market=Market.SPOT, reclaims=RECLAIMS)
    figures = {}
    for name, groups in {"on-demand": (demand,), "with spot": (demand, spot)}.items():
        faults = RandomFaults(groups, FaultRates(refill=REFILL), seed)
        replay = replace(asked, groups=groups).run(f"trimtab:thrift={THRIFT:g}", faults)
        figures[name] = {
            "cost": replay.cost,
            "deadlines_met": replay.deadlines_met,
            "avg_jct_h": float(replay.completion.mean()) / 3600.0,
            "restarts": float(replay.restarts.mean()),
        }
    figures["with spot"]["cheaper"] = 1.0 - figures["with spot"]["cost"] / figures["on-demand"]["cost"]
    return figures
