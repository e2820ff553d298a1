from .capture.builder import Built as Built, load_builder as load_builder, resized as resized
from .capture.capturing import Captured as Captured, capture_model as capture_model
from .devices import (
    Device as Device,
    Devices as Devices,
    ParsedDevices as ParsedDevices,
    devices_of as devices_of,
    islands as islands,
    parse_devices as parse_devices,
)
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
from .forecast import Slot as Slot, evaluate as evaluate, play as play
from .graph import Graph as Graph, Tie as Tie, in_order as in_order
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
from .node_times import Assumptions as Assumptions
from .pictures import plan_pictures as plan_pictures
from .plan import (
    DeviceUse as DeviceUse,
    Forecast as Forecast,
    Layout as Layout,
    Placement as Placement,
    Plan as Plan,
    Recipe as Recipe,
    Sharding as Sharding,
    Solution as Solution,
    Stage as Stage,
)
from .plan_file import PlanDocument as PlanDocument, plan_json as plan_json, read_plan as read_plan
from .problem import Problem as Problem, problem_of as problem_of
from .report import html_report as html_report
from .rivals import RIVALS as RIVALS, Reached as Reached, reached_by as reached_by
from .run.launched import Training as Training, train_launched as train_launched
from .run.measuring import (
    MeasuredLink as MeasuredLink,
    StageTime as StageTime,
    measure_link as measure_link,
    predicted_here as predicted_here,
    time_stages as time_stages,
)
from .run.processes import RunFailedError as RunFailedError
from .run.running import (
    RankReport as RankReport,
    RunReport as RunReport,
    RunSettings as RunSettings,
    run_plan as run_plan,
)
from .run.stages import stage_modules as stage_modules
from .solvers.cutting import Effort as Effort, best_cut as best_cut
from .solvers.milp import Exact as Exact, solve_exactly as solve_exactly
from .solvers.placing import place as place
from .solvers.search import SearchSettings as SearchSettings
