"""What was aimed at, beside what was reached."""

from collections.abc import Iterator, Mapping
from operator import ge, lt
from typing import Any

from trimtab_bench.goals import Goal, judged


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return judged(_goals(figures))


def _goals(figures: Mapping[str, Any]) -> Iterator[Goal]:
    yield Goal("reads per second", figures["reads_per_s"], ge, 1500.0)
    yield Goal("writes per second", figures["writes_per_s"], ge, 300.0)
    yield Goal("p99 of reads and of writes, the worse, ms", figures["p99_ms"], lt, 50.0)
    yield Goal("failed requests", float(figures["errors"]), lt, 1.0)
    yield Goal("event streams that got every event", float(figures["streams"]), ge, 500.0)
    yield Goal("worst p99 of a list's page, ms", figures["list_ms"], lt, 50.0)
    yield Goal("from the command until it answers, s", figures["ready_s"], lt, 3.0)
    if figures["failover_s"] is not None:
        yield Goal("from the leader's death to the next decision, s", figures["failover_s"], lt, 5.0)
        yield Goal("acknowledged writes that were lost", float(figures["failover"]["lost"]), lt, 1.0)
