"""Deadline and budget: what is within them, and what comes nearest where nothing is."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.core.units import format_duration, format_money
from trimtab.recommend.request import Request

Array = NDArray[np.float64]


def within_limits(time: Array, cost: Array, request: Request, name: Callable[[int], str]) -> NDArray[np.intp]:
    """Which of them meet the request; where none does, the refusal names the nearest."""
    in_time = time <= (request.deadline if request.deadline is not None else np.inf)
    affordable = cost <= (request.budget if request.budget is not None else np.inf)
    if (in_time & affordable).any():
        return np.flatnonzero(in_time & affordable)
    limits, nearest = [], int(np.argmin(time))
    if request.deadline is not None:
        limits.append(f"the deadline of {format_duration(request.deadline)}")
    if request.budget is not None:
        limits.append(f"the budget of {format_money(request.budget)}")
    if request.deadline is not None and in_time.any():
        nearest = int(np.flatnonzero(in_time)[np.argmin(cost[in_time])])
    elif request.budget is not None and affordable.any():
        nearest = int(np.flatnonzero(affordable)[np.argmin(time[affordable])])
    elif request.deadline is None:
        nearest = int(np.argmin(cost))
    raise BadInputError(
        f"no configuration meets {' and '.join(limits)}; the nearest is"
        f" {name(nearest)}, which takes {format_duration(float(time[nearest]))}"
        f" and costs {format_money(float(cost[nearest]))}"
    )
