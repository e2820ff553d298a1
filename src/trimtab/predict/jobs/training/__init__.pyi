from .baselines import BASELINES as BASELINES, Baseline as Baseline, ForestClassifier as ForestClassifier
from .choosing import (
    Wanted as Wanted,
    chance_of_top as chance_of_top,
    expected as expected,
    next_trial as next_trial,
    recommended as recommended,
)
from .features import GROUPS as GROUPS, Encoder as Encoder, Features as Features
from .fitting import Fitting as Fitting
from .guard import TRIAL as TRIAL, Forecast as Forecast, forecast as forecast
from .importance import (
    Importance as Importance,
    forest_importance as forest_importance,
    our_importance as our_importance,
)
from .labels import area_under_curve as area_under_curve, is_top as is_top, top_labels as top_labels
from .local_runs import (
    SHIPPED as SHIPPED,
    DataSet as DataSet,
    Facts as Facts,
    LocalJob as LocalJob,
    LocalRun as LocalRun,
    local_job as local_job,
    read_data as read_data,
    read_local as read_local,
)
from .networks import (
    COST as COST,
    TIME as TIME,
    TOP_COST as TOP_COST,
    TOP_TIME as TOP_TIME,
    NetworkSettings as NetworkSettings,
    ThesisNetwork as ThesisNetwork,
)
from .ours import Belief as Belief, Ours as Ours, Trial as Trial
from .rule import Line as Line, Rule as Rule
from .table import OK as OK, Configurations as Configurations, Points as Points, read_points as read_points
