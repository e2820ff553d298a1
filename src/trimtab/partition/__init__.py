"""How do I split this model over these devices?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.cost.assumptions import Assumptions
    from trimtab.partition.cost.evaluate import evaluate, play
    from trimtab.partition.cost.timeline import Slot
    from trimtab.partition.devices import Device, Devices
    from trimtab.partition.explain import compared, device_rows, figures, limits, mix, stage_rows, would_help
    from trimtab.partition.graph import Graph, Tie, in_order
    from trimtab.partition.layer_names import in_short
    from trimtab.partition.layout import Layout
    from trimtab.partition.machines import islands
    from trimtab.partition.plan import DeviceUse, Forecast, Plan, Recipe, Stage
    from trimtab.partition.problem import Problem, problem_of
    from trimtab.partition.rivals import RIVALS, Reached, reached_by
    from trimtab.partition.solvers.milp import Exact, solve_exactly
    from trimtab.partition.told_devices import ToldDevices, devices_of, devices_told

__all__ = [
    "RIVALS",
    "Assumptions",
    "Device",
    "DeviceUse",
    "Devices",
    "Exact",
    "Forecast",
    "Graph",
    "Layout",
    "Plan",
    "Problem",
    "Reached",
    "Recipe",
    "Slot",
    "Stage",
    "Tie",
    "ToldDevices",
    "compared",
    "device_rows",
    "devices_of",
    "devices_told",
    "evaluate",
    "figures",
    "in_order",
    "in_short",
    "islands",
    "limits",
    "mix",
    "play",
    "problem_of",
    "reached_by",
    "solve_exactly",
    "stage_rows",
    "would_help",
]

# Everything here needs NumPy, and some of it PyTorch; who only asks for help should not wait for either.
_LAZY = {
    "RIVALS": "rivals",
    "Reached": "rivals",
    "reached_by": "rivals",
    "Exact": "solvers.milp",
    "solve_exactly": "solvers.milp",
    "Assumptions": "cost.assumptions",
    "Device": "devices",
    "DeviceUse": "plan",
    "Devices": "devices",
    "Forecast": "plan",
    "Graph": "graph",
    "Layout": "layout",
    "Plan": "plan",
    "Problem": "problem",
    "Recipe": "plan",
    "Slot": "cost.timeline",
    "Stage": "plan",
    "Tie": "graph",
    "ToldDevices": "told_devices",
    "compared": "explain",
    "device_rows": "explain",
    "devices_of": "told_devices",
    "devices_told": "told_devices",
    "evaluate": "cost.evaluate",
    "figures": "explain",
    "in_order": "graph",
    "in_short": "layer_names",
    "islands": "machines",
    "limits": "explain",
    "mix": "explain",
    "play": "cost.evaluate",
    "problem_of": "problem",
    "stage_rows": "explain",
    "would_help": "explain",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
