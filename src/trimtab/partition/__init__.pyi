from .capture.capturing import capture_model as capture_model
from .devices import Devices as Devices, devices_of as devices_of, parse_devices as parse_devices
from .explain import (
    HOW_PLACED as HOW_PLACED,
    Explained as Explained,
    ExplainedPlacement as ExplainedPlacement,
    explained as explained,
    explained_placement as explained_placement,
)
from .exports import (
    device_map as device_map,
    placement_map as placement_map,
    torchrun_script as torchrun_script,
)
from .fitting import why_not as why_not
from .forecast import evaluate as evaluate
from .graph import Graph as Graph, in_order as in_order
from .graph_file import (
    load_graph as load_graph,
    load_target as load_target,
    read_graph as read_graph,
    write_graph as write_graph,
)
from .ledger_entry import decision as decision
from .methods import (
    METHODS as METHODS,
    plan_by as plan_by,
    solve as solve,
    with_usual_plans as with_usual_plans,
)
from .pictures import plan_pictures as plan_pictures
from .plan import (
    Layout as Layout,
    NodePlacement as NodePlacement,
    Plan as Plan,
    PlanForecast as PlanForecast,
    Recipe as Recipe,
    Sharding as Sharding,
    Solution as Solution,
    Stage as Stage,
)
from .plan_file import plan_json as plan_json, read_plan as read_plan
from .problem import CutProblem as CutProblem, problem_of as problem_of
from .report import html_report as html_report
from .rivals import RIVALS as RIVALS, reached_by as reached_by
from .run.measuring import (
    MeasuredLink as MeasuredLink,
    measure_link as measure_link,
    predicted_here as predicted_here,
    time_stages as time_stages,
)
from .run.processes import leave_at_once as leave_at_once
from .run.rank_process import Training as Training, train_launched as train_launched
from .run.running import RunReport as RunReport, RunSettings as RunSettings, run_plan as run_plan
from .solvers.cutting import CutEffort as CutEffort, best_cut as best_cut
from .solvers.milp import solve_exactly as solve_exactly
from .solvers.placing import place as place
from .solvers.search import SearchSettings as SearchSettings
