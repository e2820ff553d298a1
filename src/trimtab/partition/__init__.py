"""How do I split this model over these devices?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.partition.alternatives import with_usual_plans
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
    from trimtab.partition.explain_placement import HOW_PLACED, ExplainedPlacement, explained_placement
    from trimtab.partition.exports import (
        PlanDocument,
        device_map,
        placement_map,
        plan_json,
        read_plan,
        torchrun_script,
    )
    from trimtab.partition.fitting import why_not
    from trimtab.partition.graph import Graph, Tie, in_order
    from trimtab.partition.graph_file import read_graph, write_graph
    from trimtab.partition.layout import Layout
    from trimtab.partition.ledger_entry import decision
    from trimtab.partition.machines import islands
    from trimtab.partition.methods import METHODS, plan_by
    from trimtab.partition.pictures import plan_pictures
    from trimtab.partition.placement import Placement
    from trimtab.partition.plan import DeviceUse, Forecast, Plan, Recipe, Sharding, Stage
    from trimtab.partition.problem import Problem, problem_of
    from trimtab.partition.report import html_report
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
        predicted_here,
        run_plan,
        stage_modules,
        time_stages,
        train_launched,
    )
    from trimtab.partition.search_settings import SearchSettings
    from trimtab.partition.solution import Solution
    from trimtab.partition.solvers.cutting import Effort, best_cut
    from trimtab.partition.solvers.milp import Exact, solve_exactly
    from trimtab.partition.solvers.placing import place
    from trimtab.partition.solving import solve
    from trimtab.partition.told_devices import ToldDevices, devices_of, devices_told

__all__ = [
    "HOW_PLACED",
    "METHODS",
    "RIVALS",
    "Assumptions",
    "Built",
    "Captured",
    "Device",
    "DeviceUse",
    "Devices",
    "Effort",
    "Exact",
    "Explained",
    "ExplainedPlacement",
    "Forecast",
    "Graph",
    "Layout",
    "Link",
    "Placement",
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
    "Sharding",
    "Slot",
    "Solution",
    "Stage",
    "StageTime",
    "Tie",
    "ToldDevices",
    "Training",
    "best_cut",
    "capture_model",
    "decision",
    "device_map",
    "devices_of",
    "devices_told",
    "evaluate",
    "explained",
    "explained_placement",
    "html_report",
    "in_order",
    "islands",
    "load_builder",
    "load_graph",
    "load_target",
    "measure_link",
    "place",
    "placement_map",
    "plan_by",
    "plan_json",
    "plan_pictures",
    "play",
    "predicted_here",
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
    "why_not",
    "with_usual_plans",
    "write_graph",
]

# Everything here needs NumPy, and some of it PyTorch; who only asks for help should not wait for either.
_LAZY = {
    "place": "solvers.placing",
    "Placement": "placement",
    "Effort": "solvers.cutting",
    "best_cut": "solvers.cutting",
    "HOW_PLACED": "explain_placement",
    "METHODS": "methods",
    "RIVALS": "rivals",
    "Assumptions": "cost.assumptions",
    "Built": "capture.builder",
    "Captured": "capture.capturing",
    "Device": "devices",
    "DeviceUse": "plan",
    "Devices": "devices",
    "Exact": "solvers.milp",
    "Explained": "explain",
    "ExplainedPlacement": "explain_placement",
    "Forecast": "plan",
    "Graph": "graph",
    "Layout": "layout",
    "Link": "run",
    "Plan": "plan",
    "PlanDocument": "exports",
    "Problem": "problem",
    "RankReport": "run",
    "Reached": "rivals",
    "Recipe": "plan",
    "RunFailedError": "run",
    "RunReport": "run",
    "RunSettings": "run",
    "SearchSettings": "search_settings",
    "Sharding": "plan",
    "Slot": "cost.timeline",
    "Solution": "solution",
    "Stage": "plan",
    "StageTime": "run",
    "Tie": "graph",
    "ToldDevices": "told_devices",
    "Training": "run",
    "capture_model": "capture.capturing",
    "decision": "ledger_entry",
    "device_map": "exports",
    "devices_of": "told_devices",
    "devices_told": "told_devices",
    "evaluate": "cost.evaluate",
    "explained": "explain",
    "explained_placement": "explain_placement",
    "html_report": "report",
    "in_order": "graph",
    "islands": "machines",
    "load_builder": "capture.builder",
    "load_graph": "capture.target",
    "load_target": "capture.target",
    "measure_link": "run",
    "plan_by": "methods",
    "placement_map": "exports",
    "plan_json": "exports",
    "plan_pictures": "pictures",
    "play": "cost.evaluate",
    "predicted_here": "run",
    "problem_of": "problem",
    "reached_by": "rivals",
    "read_graph": "graph_file",
    "read_plan": "exports",
    "resized": "capture.builder",
    "run_plan": "run",
    "solve": "solving",
    "solve_exactly": "solvers.milp",
    "stage_modules": "run",
    "time_stages": "run",
    "torchrun_script": "exports",
    "train_launched": "run",
    "why_not": "fitting",
    "with_usual_plans": "alternatives",
    "write_graph": "graph_file",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
