"""How does the traffic survive a dead link? One virtual device over two uplinks, and who moves it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.fabric.apply import apply_plan, commands, plan_here, undo, undo_commands
from trimtab.fabric.host_file import host_of, read_host
from trimtab.fabric.plan import Plan
from trimtab.fabric.topology import Host, Tenant, Timers, Uplink, VirtualFunction, WorkerDevice

if TYPE_CHECKING:
    from trimtab.fabric.advice import ASSUMED, Advice, Assumption, Failures, Losses, Question
    from trimtab.fabric.advisor import advise, catalog_price

__all__ = [
    "ASSUMED",
    "Advice",
    "Assumption",
    "Failures",
    "Host",
    "Losses",
    "Plan",
    "Question",
    "Tenant",
    "Timers",
    "Uplink",
    "VirtualFunction",
    "WorkerDevice",
    "advise",
    "apply_plan",
    "catalog_price",
    "commands",
    "host_of",
    "plan_here",
    "read_host",
    "undo",
    "undo_commands",
]

# Those below start slowly, or need what not every host has.
_LAZY = {
    "ASSUMED": "advice",
    "Advice": "advice",
    "Assumption": "advice",
    "Failures": "advice",
    "Losses": "advice",
    "Question": "advice",
    "advise": "advisor",
    "catalog_price": "advisor",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
