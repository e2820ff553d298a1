"""How do I split this model over these devices?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.capture import (
        Built,
        Captured,
        capture_model,
        load_builder,
        load_graph,
        load_target,
        resized,
    )
    from trimtab.partition.cost.assumptions import Assumptions
    from trimtab.partition.cost.evaluate import evaluate, play
    from trimtab.partition.cost.timeline import Slot
    from trimtab.partition.devices import Device, Devices
    from trimtab.partition.explain import Explained, explained
    from trimtab.partition.exports import (
        PlanDocument,
        device_map,
        plan_json,
        read_plan,
        torchrun_script,
    )
    from trimtab.partition.graph import Graph, Tie, in_order
    from trimtab.partition.graph_file import read_graph, write_graph
    from trimtab.partition.layout import Layout
    from trimtab.partition.ledger_entry import decision
    from trimtab.partition.machines import islands
    from trimtab.partition.plan import DeviceUse, Forecast, Plan, Recipe, Stage
    from trimtab.partition.problem import Problem, problem_of
    from trimtab.partition.rivals import RIVALS, Reached, reached_by
    from trimtab.partition.run import (
        Link,
        RankReport,
        RunFailedError,
        RunReport,
        RunSettings,
        StageTime,
        Training,
        measure_link,
        run_plan,
        stage_modules,
        time_stages,
        train_launched,
    )
    from trimtab.partition.search_settings import SearchSettings
    from trimtab.partition.solution import Solution
    from trimtab.partition.solvers.milp import Exact, solve_exactly
    from trimtab.partition.solving import solve
    from trimtab.partition.told_devices import ToldDevices, devices_of, devices_told

__all__ = [
    "RIVALS",
    "Assumptions",
    "Built",
    "Captured",
    "Device",
    "DeviceUse",
    "Devices",
    "Exact",
    "Explained",
    "Forecast",
    "Graph",
    "Layout",
    "Link",
    "Plan",
    "PlanDocument",
    "Problem",
    "RankReport",
    "Reached",
    "Recipe",
    "RunFailedError",
    "RunReport",
    "RunSettings",
    "SearchSettings",
    "Slot",
    "Solution",
    "Stage",
    "StageTime",
    "Tie",
    "ToldDevices",
    "Training",
    "capture_model",
    "decision",
    "device_map",
    "devices_of",
    "devices_told",
    "evaluate",
    "explained",
    "in_order",
    "islands",
    "load_builder",
    "load_graph",
    "load_target",
    "measure_link",
    "plan_json",
    "play",
    "problem_of",
    "reached_by",
    "read_graph",
    "read_plan",
    "resized",
    "run_plan",
    "solve",
    "solve_exactly",
    "stage_modules",
    "time_stages",
    "torchrun_script",
    "train_launched",
    "write_graph",
]

# Everything here needs NumPy, and some of it PyTorch; who only asks for help should not wait for either.
_LAZY = {
    "solve": "solving",
    "SearchSettings": "search_settings",
    "RIVALS": "rivals",
    "Assumptions": "cost.assumptions",
    "Device": "devices",
    "DeviceUse": "plan",
    "Devices": "devices",
    "Exact": "solvers.milp",
    "Explained": "explain",
    "Forecast": "plan",
    "Graph": "graph",
    "Layout": "layout",
    "Plan": "plan",
    "Problem": "problem",
    "Reached": "rivals",
    "Recipe": "plan",
    "Slot": "cost.timeline",
    "Solution": "solution",
    "Stage": "plan",
    "Tie": "graph",
    "ToldDevices": "told_devices",
    "decision": "ledger_entry",
    "devices_of": "told_devices",
    "devices_told": "told_devices",
    "evaluate": "cost.evaluate",
    "explained": "explain",
    "in_order": "graph",
    "islands": "machines",
    "play": "cost.evaluate",
    "problem_of": "problem",
    "reached_by": "rivals",
    "solve_exactly": "solvers.milp",
    "Built": "capture.builder",
    "Captured": "capture.capturing",
    "capture_model": "capture.capturing",
    "load_builder": "capture.builder",
    "load_graph": "capture.target",
    "load_target": "capture.target",
    "resized": "capture.builder",
    "read_graph": "graph_file",
    "write_graph": "graph_file",
    "Link": "run",
    "PlanDocument": "exports",
    "RankReport": "run",
    "RunFailedError": "run",
    "RunReport": "run",
    "RunSettings": "run",
    "StageTime": "run",
    "Training": "run",
    "device_map": "exports",
    "measure_link": "run",
    "plan_json": "exports",
    "read_plan": "exports",
    "run_plan": "run",
    "stage_modules": "run",
    "time_stages": "run",
    "torchrun_script": "exports",
    "train_launched": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
