from .alternatives import with_usual_plans as with_usual_plans
from .capture.builder import Built as Built, load_builder as load_builder, resized as resized
from .capture.capturing import Captured as Captured, capture_model as capture_model
from .capture.target import load_graph as load_graph, load_target as load_target
from .cost.assumptions import Assumptions as Assumptions
from .cost.evaluate import evaluate as evaluate, play as play
from .cost.timeline import Slot as Slot
from .devices import Device as Device, Devices as Devices
from .explain import Explained as Explained, explained as explained
from .explain_placement import (
    HOW_PLACED as HOW_PLACED,
    ExplainedPlacement as ExplainedPlacement,
    explained_placement as explained_placement,
)
from .exports.accelerate_map import device_map as device_map, placement_map as placement_map
from .exports.plan_file import PlanDocument as PlanDocument, plan_json as plan_json, read_plan as read_plan
from .exports.torchrun import torchrun_script as torchrun_script
from .fitting import why_not as why_not
from .graph import Graph as Graph, Tie as Tie, in_order as in_order
from .graph_file import read_graph as read_graph, write_graph as write_graph
from .layout import Layout as Layout
from .ledger_entry import decision as decision
from .machines import islands as islands
from .methods import METHODS as METHODS, plan_by as plan_by
from .pictures import plan_pictures as plan_pictures
from .placement import Placement as Placement
from .plan import (
    DeviceUse as DeviceUse,
    Forecast as Forecast,
    Plan as Plan,
    Recipe as Recipe,
    Sharding as Sharding,
    Stage as Stage,
)
from .problem import Problem as Problem, problem_of as problem_of
from .report import html_report as html_report
from .rivals import RIVALS as RIVALS
from .rivals.contest import Reached as Reached, reached_by as reached_by
from .run.launched import Training as Training, train_launched as train_launched
from .run.links import Link as Link, measure_link as measure_link
from .run.prediction import predicted_here as predicted_here
from .run.processes import RunFailedError as RunFailedError
from .run.report import RankReport as RankReport, RunReport as RunReport
from .run.running import RunSettings as RunSettings, run_plan as run_plan
from .run.stages import stage_modules as stage_modules
from .run.timing import StageTime as StageTime, time_stages as time_stages
from .search_settings import SearchSettings as SearchSettings
from .solution import Solution as Solution
from .solvers.cutting import Effort as Effort, best_cut as best_cut
from .solvers.milp import Exact as Exact, solve_exactly as solve_exactly
from .solvers.placing import place as place
from .solving import solve as solve
from .told_devices import ToldDevices as ToldDevices, devices_of as devices_of, devices_told as devices_told
