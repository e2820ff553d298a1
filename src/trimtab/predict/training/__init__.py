"""How long, and for how much, would a distributed training job run under each configuration?

Answered from a short local run of it, from what other jobs did, and from trials of it where there are some.
`read_data` reads data sets, `Ours.fitted` learns, `forecast` answers behind the guard, `next_trial` says
what to try. The thesis' networks and ordinary models are beside it, to be compared with.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.predict.training.baselines import BASELINES, Baseline, ForestClassifier
    from trimtab.predict.training.choosing import Wanted, chance_of_top, expected, next_trial, recommended
    from trimtab.predict.training.features import GROUPS, Encoder, Features
    from trimtab.predict.training.fitting import Fitting
    from trimtab.predict.training.guard import MODEL, RULE, TRIAL, Forecast, forecast
    from trimtab.predict.training.importance import Importance, forest_importance, our_importance
    from trimtab.predict.training.labels import area_under_curve, is_top, top_labels
    from trimtab.predict.training.local_runs import (
        SHIPPED,
        DataSet,
        Facts,
        LocalJob,
        LocalRun,
        local_job,
        read_data,
        read_local,
    )
    from trimtab.predict.training.networks import (
        COST,
        TIME,
        TOP_COST,
        TOP_TIME,
        NetworkSettings,
        ThesisNetwork,
    )
    from trimtab.predict.training.ours import Belief, Ours, Trial
    from trimtab.predict.training.rule import Line, Rule
    from trimtab.predict.training.table import OK, Configurations, Points, read_points

__all__ = [
    "BASELINES",
    "COST",
    "GROUPS",
    "MODEL",
    "OK",
    "RULE",
    "SHIPPED",
    "TIME",
    "TOP_COST",
    "TOP_TIME",
    "TRIAL",
    "Baseline",
    "Belief",
    "Configurations",
    "DataSet",
    "Encoder",
    "Facts",
    "Features",
    "Fitting",
    "Forecast",
    "ForestClassifier",
    "Importance",
    "Line",
    "LocalJob",
    "LocalRun",
    "NetworkSettings",
    "Ours",
    "Points",
    "Rule",
    "ThesisNetwork",
    "Trial",
    "Wanted",
    "area_under_curve",
    "chance_of_top",
    "expected",
    "forecast",
    "forest_importance",
    "is_top",
    "local_job",
    "next_trial",
    "our_importance",
    "read_data",
    "read_local",
    "read_points",
    "recommended",
    "top_labels",
]

_ROOMS = {
    "BASELINES": "baselines",
    "COST": "networks",
    "GROUPS": "features",
    "MODEL": "guard",
    "OK": "table",
    "RULE": "guard",
    "SHIPPED": "local_runs",
    "TIME": "networks",
    "TOP_COST": "networks",
    "TOP_TIME": "networks",
    "TRIAL": "guard",
    "Baseline": "baselines",
    "Belief": "ours",
    "Configurations": "table",
    "DataSet": "local_runs",
    "Encoder": "features",
    "Facts": "local_runs",
    "Features": "features",
    "Fitting": "fitting",
    "Forecast": "guard",
    "ForestClassifier": "baselines",
    "Importance": "importance",
    "Line": "rule",
    "LocalJob": "local_runs",
    "LocalRun": "local_runs",
    "NetworkSettings": "networks",
    "Ours": "ours",
    "Points": "table",
    "Rule": "rule",
    "ThesisNetwork": "networks",
    "Trial": "ours",
    "Wanted": "choosing",
    "area_under_curve": "labels",
    "chance_of_top": "choosing",
    "expected": "choosing",
    "forecast": "guard",
    "forest_importance": "importance",
    "is_top": "labels",
    "local_job": "local_runs",
    "next_trial": "choosing",
    "our_importance": "importance",
    "read_data": "local_runs",
    "read_local": "local_runs",
    "read_points": "table",
    "recommended": "choosing",
    "top_labels": "labels",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
