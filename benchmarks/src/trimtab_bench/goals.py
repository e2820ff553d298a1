"""What a bench aims at, beside what it reached."""

from collections.abc import Callable, Iterable, Mapping
from operator import ge, le, lt
from typing import Any, NamedTuple

from trimtab_bench.result import Table

_WORDS: dict[Callable[[float, float], bool], str] = {ge: "at least", le: "at most", lt: "less than"}


class Goal(NamedTuple):
    """A figure, and what it is held against: `compare` is `ge`, `le` or `lt` of the module operator."""

    name: str
    value: float
    compare: Callable[[float, float], bool]
    wanted: float


def judged(goals: Iterable[Goal]) -> dict[str, dict[str, Any]]:
    """Every goal by name: its value, what is wanted, and whether that was reached."""
    return {
        goal.name: {
            "value": goal.value,
            "wanted": f"{_WORDS[goal.compare]} {goal.wanted:g}",
            "met": goal.compare(goal.value, goal.wanted),
        }
        for goal in goals
    }


def goals_table(found: Mapping[str, Mapping[str, Any]], title: str = "What was aimed at") -> Table:
    """Goals that were judged, for people."""
    rows = tuple(
        (name, f"{each['value']:,.3f}", each["wanted"], "yes" if each["met"] else "no")
        for name, each in found.items()
    )
    return Table(title, ("goal", "reached", "wanted", "met"), rows)
