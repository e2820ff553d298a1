"""A plan for other tools: as JSON, as Accelerate's device map, as a script that torchrun starts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.exports.accelerate_map import device_map, placement_map
    from trimtab.partition.exports.plan_file import PlanDocument, plan_json, read_plan
    from trimtab.partition.exports.torchrun import torchrun_script

__all__ = [
    "PlanDocument",
    "device_map",
    "placement_map",
    "plan_json",
    "read_plan",
    "torchrun_script",
]

_LAZY = {
    "PlanDocument": "plan_file",
    "device_map": "accelerate_map",
    "placement_map": "accelerate_map",
    "plan_json": "plan_file",
    "read_plan": "plan_file",
    "torchrun_script": "torchrun",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
