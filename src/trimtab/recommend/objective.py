"""What makes one configuration better than another. Adding an objective is one function and one line."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trimtab.core import NotFoundError

Array = NDArray[np.float64]


def _cost(time: Array, cost: Array) -> Array:
    return cost


def _time(time: Array, cost: Array) -> Array:
    return time


def _balanced(time: Array, cost: Array) -> Array:
    """Time times cost: twice as fast is worth twice the money."""
    return time * cost


OBJECTIVES: dict[str, tuple[Callable[[Array, Array], Array], str]] = {
    "cost": (_cost, "the cheapest"),
    "time": (_time, "the fastest"),
    "balanced": (_balanced, "the least time times cost"),
}


def score(objective: str, time: Array, cost: Array) -> Array:
    """Lower is better."""
    if objective not in OBJECTIVES:
        raise NotFoundError(f'no objective is called "{objective}"; there are {", ".join(OBJECTIVES)}')
    return OBJECTIVES[objective][0](time, cost)
