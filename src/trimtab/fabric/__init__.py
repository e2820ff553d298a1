"""How does the traffic survive a dead link? One virtual device over two uplinks, and who moves it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.fabric.apply import apply_plan, commands, plan_here, undo, undo_commands
from trimtab.fabric.host_file import host_of, read_host
from trimtab.fabric.plan import Plan
from trimtab.fabric.topology import Echo, Host, Tenant, Timers, Uplink, VirtualFunction, WorkerDevice

if TYPE_CHECKING:
    from trimtab.fabric.advice import ASSUMED, Advice, Assumption, Failures, Losses, Question
    from trimtab.fabric.advisor import advise, catalog_price
    from trimtab.fabric.agent import Agent, agent_runs
    from trimtab.fabric.failover import Failover
    from trimtab.fabric.frr import find_programs
    from trimtab.fabric.ledger_entry import advice_decision
    from trimtab.fabric.process import agent_of, sessions_of
    from trimtab.fabric.reconcile import (
        PLANES,
        ReconcileFigures,
        Reconciler,
        bpf_unavailable,
        flower_unavailable,
        measure_reconciling,
        reconciler_of,
    )
    from trimtab.fabric.status import Sessions, Status, exposition, fabrics_here, plain_status, read_status
    from trimtab.fabric.whole_host import put_up, put_up_commands, take_down

__all__ = [
    "ASSUMED",
    "PLANES",
    "Advice",
    "Agent",
    "Assumption",
    "Echo",
    "Failover",
    "Failures",
    "Host",
    "Losses",
    "Plan",
    "Question",
    "ReconcileFigures",
    "Reconciler",
    "Sessions",
    "Status",
    "Tenant",
    "Timers",
    "Uplink",
    "VirtualFunction",
    "WorkerDevice",
    "advice_decision",
    "advise",
    "agent_of",
    "agent_runs",
    "apply_plan",
    "bpf_unavailable",
    "catalog_price",
    "commands",
    "exposition",
    "fabrics_here",
    "find_programs",
    "flower_unavailable",
    "host_of",
    "measure_reconciling",
    "plain_status",
    "plan_here",
    "put_up",
    "put_up_commands",
    "read_host",
    "read_status",
    "reconciler_of",
    "sessions_of",
    "take_down",
    "undo",
    "undo_commands",
]

# Those below start slowly, or need what not every host has.
_LAZY = {
    "ASSUMED": "advice",
    "Advice": "advice",
    "Agent": "agent",
    "Assumption": "advice",
    "Failover": "failover",
    "Failures": "advice",
    "Losses": "advice",
    "PLANES": "reconcile",
    "Question": "advice",
    "ReconcileFigures": "reconcile",
    "Reconciler": "reconcile",
    "Sessions": "status",
    "Status": "status",
    "advice_decision": "ledger_entry",
    "advise": "advisor",
    "agent_of": "process",
    "agent_runs": "agent",
    "bpf_unavailable": "reconcile",
    "catalog_price": "advisor",
    "exposition": "status",
    "fabrics_here": "status",
    "find_programs": "frr",
    "flower_unavailable": "reconcile",
    "measure_reconciling": "reconcile",
    "plain_status": "status",
    "put_up": "whole_host",
    "put_up_commands": "whole_host",
    "read_status": "status",
    "reconciler_of": "reconcile",
    "sessions_of": "process",
    "take_down": "whole_host",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
