"""How do I split this model over these devices?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.cost.assumptions import Assumptions
    from trimtab.partition.cost.evaluate import evaluate, play
    from trimtab.partition.cost.timeline import Slot
    from trimtab.partition.devices import Device, Devices
    from trimtab.partition.graph import Graph, Tie, in_order
    from trimtab.partition.layout import Layout
    from trimtab.partition.machines import islands
    from trimtab.partition.plan import DeviceUse, Forecast, Plan, Recipe, Stage
    from trimtab.partition.problem import Problem, problem_of
    from trimtab.partition.rivals import RIVALS
    from trimtab.partition.told_devices import ToldDevices, devices_of, devices_told

__all__ = [
    "RIVALS",
    "Assumptions",
    "Device",
    "DeviceUse",
    "Devices",
    "Forecast",
    "Graph",
    "Layout",
    "Plan",
    "Problem",
    "Recipe",
    "Slot",
    "Stage",
    "Tie",
    "ToldDevices",
    "devices_of",
    "devices_told",
    "evaluate",
    "in_order",
    "islands",
    "play",
    "problem_of",
]

# Everything here needs NumPy, and some of it PyTorch; who only asks for help should not wait for either.
_LAZY = {
    "problem_of": "problem",
    "Problem": "problem",
    "Layout": "layout",
    "Slot": "cost.timeline",
    "play": "cost.evaluate",
    "evaluate": "cost.evaluate",
    "Assumptions": "cost.assumptions",
    "RIVALS": "rivals",
    "Device": "devices",
    "DeviceUse": "plan",
    "Devices": "devices",
    "Forecast": "plan",
    "Graph": "graph",
    "Plan": "plan",
    "Recipe": "plan",
    "Stage": "plan",
    "Tie": "graph",
    "ToldDevices": "told_devices",
    "devices_of": "told_devices",
    "devices_told": "told_devices",
    "in_order": "graph",
    "islands": "machines",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
