"""How good the data is that everything rests on, and how far ours and the rule are off on jobs left out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab.predict.jobs.training import DataSet, Ours, Points
from trimtab_bench.result import Table


def data_figures(data: DataSet) -> dict[str, Any]:
    """`noise`, and `step_error` of either on jobs left out in turn, as the guard compares them."""
    backtest = Ours.fitted(data.points, data.local).backtest
    return {
        "noise": noise(data.points),
        "step_error": {"trimtab": backtest.model, "rule": backtest.rule},
    }


def noise(points: Points) -> float:
    """Standard deviation of log seconds between shapes of equal CPUs, which should take equally long."""
    alike: dict[tuple[str, float, float, float], list[float]] = {}
    for row in np.flatnonzero(points.ok):
        where = points.where
        key = (points.job[row], where.workers[row], where.batch[row], where.cpus[row])
        alike.setdefault(key, []).append(float(np.log(points.step_seconds[row])))
    return float(np.sqrt(np.mean([np.var(each, ddof=1) for each in alike.values() if len(each) > 1])))


def data_table(figures: Mapping[str, Any]) -> Table:
    """The same for people."""
    error = figures["step_error"]
    rows = (
        ("points", f"{figures['measured']}, {figures['ok']} of them ok"),
        ("shapes of equal CPUs differ by", f"{figures['noise']:.1%}"),
        ("a step's seconds on jobs left out, trimtab, mean error", f"{error['trimtab']:.1%}"),
        ("… the rule", f"{error['rule']:.1%}"),
    )
    return Table("The data, and what can be said of a job without points", ("what", "figure"), rows)
