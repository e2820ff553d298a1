"""What should each stage of a machine-learning pipeline ask for? Reads, runs, sizes and writes pipelines."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.workflow.accelerators import parse_accelerators
    from trimtab.partition.workflow.ledger_entry import stage_decision
    from trimtab.partition.workflow.pipeline import Asked, Pipeline, Request, Stage
    from trimtab.partition.workflow.quantity import format_cpu, format_memory, parse_quantity
    from trimtab.partition.workflow.reading import read_pipeline, work_folder, write_requests
    from trimtab.partition.workflow.report import pipeline_report
    from trimtab.partition.workflow.reserved import Reserved, reserved_ways
    from trimtab.partition.workflow.running import (
        InterruptedRunError,
        RunSettings,
        StageProgress,
        profile_stages,
    )
    from trimtab.partition.workflow.sizing import RULE, Rule, Sized, Use, size, use_of

# Reading a file needs neither the profiler nor a library of charts.
_ROOMS = {
    "accelerators": ("parse_accelerators",),
    "ledger_entry": ("stage_decision",),
    "pipeline": ("Asked", "Pipeline", "Request", "Stage"),
    "quantity": ("format_cpu", "format_memory", "parse_quantity"),
    "reading": ("read_pipeline", "work_folder", "write_requests"),
    "report": ("pipeline_report",),
    "reserved": ("Reserved", "reserved_ways"),
    "running": ("InterruptedRunError", "RunSettings", "StageProgress", "profile_stages"),
    "sizing": ("RULE", "Rule", "Sized", "Use", "size", "use_of"),
}
_LAZY = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "RULE",
    "Asked",
    "InterruptedRunError",
    "Pipeline",
    "Request",
    "Reserved",
    "Rule",
    "RunSettings",
    "Sized",
    "Stage",
    "StageProgress",
    "Use",
    "format_cpu",
    "format_memory",
    "parse_accelerators",
    "parse_quantity",
    "pipeline_report",
    "profile_stages",
    "read_pipeline",
    "reserved_ways",
    "size",
    "stage_decision",
    "use_of",
    "work_folder",
    "write_requests",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
