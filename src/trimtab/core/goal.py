"""Goals: the objective that ranks configurations, and the limits that they must keep.

Adding an objective is one line in `OBJECTIVES`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.core.errors import BadInputError, NotFoundError
from trimtab.core.units import format_duration, format_money

Array = NDArray[np.float64]


OBJECTIVES: dict[str, tuple[Callable[[Array, Array, Array], Array], str]] = {
    "cost": (lambda time, cost, energy: cost, "the cheapest"),
    "time": (lambda time, cost, energy: time, "the fastest"),
    "balanced": (lambda time, cost, energy: time * cost, "the least time times cost"),
    "energy": (lambda time, cost, energy: energy, "the least energy"),
}
"""A function of time (s), cost ($) and energy (J) to minimize, and a description of the best."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Objective, deadline in seconds, budget in dollars, and how many rows of a ranking are shown."""

    objective: str = "balanced"
    deadline: float | None = None
    budget: float | None = None
    top: int = 10

    def __post_init__(self) -> None:
        if self.top < 1:
            raise BadInputError(f"--top is {self.top}; it should be at least 1")
        for name in ("deadline", "budget"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise BadInputError(f"the {name} is {value:g}; it should be more than zero")


@dataclass(frozen=True, slots=True)
class Dropped:
    """Offers or configurations left out of a ranking, and why."""

    count: int
    reason: str


def score(objective: str, time: Array, cost: Array, energy: Array | None = None) -> Array:
    """Score of each configuration by its time (s), cost ($) and energy (J). Lower is better."""
    if objective not in OBJECTIVES:
        raise NotFoundError(f'no objective is called "{objective}"; there are {", ".join(OBJECTIVES)}')
    if energy is None:
        if objective == "energy":
            raise BadInputError(
                'the objective is "energy", but the energy of these configurations is unknown; choose cost,'
                " time or balanced"
            )
        energy = np.full_like(time, np.nan)
    return OBJECTIVES[objective][0](time, cost, energy)


def within_limits(time: Array, cost: Array, goal: Goal, name: Callable[[int], str]) -> NDArray[np.intp]:
    """Indices within deadline and budget; if there are none, the error names the nearest configuration."""
    in_time = time <= (goal.deadline if goal.deadline is not None else np.inf)
    affordable = cost <= (goal.budget if goal.budget is not None else np.inf)
    if (in_time & affordable).any():
        return np.flatnonzero(in_time & affordable)
    limits, nearest = [], int(np.argmin(time))
    if goal.deadline is not None:
        limits.append(f"the deadline of {format_duration(goal.deadline)}")
    if goal.budget is not None:
        limits.append(f"the budget of {format_money(goal.budget)}")
    if goal.deadline is not None and in_time.any():
        nearest = int(np.flatnonzero(in_time)[np.argmin(cost[in_time])])
    elif goal.budget is not None and affordable.any():
        nearest = int(np.flatnonzero(affordable)[np.argmin(time[affordable])])
    elif goal.deadline is None:
        nearest = int(np.argmin(cost))
    raise BadInputError(
        f"no configuration meets {' and '.join(limits)}; the nearest is"
        f" {name(nearest)}, which takes {format_duration(float(time[nearest]))}"
        f" and costs {format_money(float(cost[nearest]))}"
    )
