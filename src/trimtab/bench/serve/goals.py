"""What was aimed at, beside what was reached."""

from collections.abc import Callable, Iterator, Mapping
from operator import ge, lt
from typing import Any, NamedTuple


class _Goal(NamedTuple):
    name: str
    value: float
    compare: Callable[[float, float], bool]
    wanted: float


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return {
        goal.name: {
            "value": goal.value,
            "wanted": f"{'less than' if goal.compare is lt else 'at least'} {goal.wanted:g}",
            "met": goal.compare(goal.value, goal.wanted),
        }
        for goal in _goals(figures)
    }


def _goals(figures: Mapping[str, Any]) -> Iterator[_Goal]:
    yield _Goal("reads per second", figures["reads_per_s"], ge, 1500.0)
    yield _Goal("writes per second", figures["writes_per_s"], ge, 300.0)
    yield _Goal("p99 of reads and of writes, the worse, ms", figures["p99_ms"], lt, 50.0)
    yield _Goal("failed requests", float(figures["errors"]), lt, 1.0)
    yield _Goal("event streams that got every event", float(figures["streams"]), ge, 500.0)
    yield _Goal("worst p99 of a list's page, ms", figures["list_ms"], lt, 50.0)
    if figures["failover_s"] is not None:
        yield _Goal("from the leader's death to the next decision, s", figures["failover_s"], lt, 5.0)
        yield _Goal("acknowledged writes that were lost", float(figures["failover"]["lost"]), lt, 1.0)
