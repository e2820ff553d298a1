"""A row of the data set: one function at one memory size, over all its turns."""

import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True, slots=True)
class Usage:
    """What invocations took of the machine, all together: the difference of two looks at the counters."""

    cpu_user_s: float = 0.0
    cpu_system_s: float = 0.0
    voluntary_switches: float = 0.0
    involuntary_switches: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    bytes_received: float = 0.0
    bytes_sent: float = 0.0
    throttled_s: float = 0.0
    throttled_periods: float = 0.0
    waiting_s: float = 0.0

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Turn:
    """Invocations one right after the other: how long each took, in seconds, and what they used together."""

    durations: tuple[float, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Measurement:
    """A function at a size. Counts, bytes and CPU times are means per invocation."""

    environment: str
    application: str
    memory_mb: int
    cpus: float  # what the size buys
    status: str  # ok, out-of-memory, timed-out or failed
    n: int = 0
    mean_s: float = 0.0
    median_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    std_s: float = 0.0
    min_s: float = 0.0
    max_s: float = 0.0
    cpu_user_s: float = 0.0
    cpu_system_s: float = 0.0
    voluntary_switches: float = 0.0
    involuntary_switches: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    bytes_received: float = 0.0
    bytes_sent: float = 0.0
    memory_peak_bytes: float = 0.0
    throttled_s: float = 0.0
    throttled_periods: float = 0.0
    waiting_s: float = 0.0  # wanted a CPU and did not have one, whoever kept it from it
    probe_s: float = 0.0  # a fixed piece of work before each turn, outside the group: the host's speed


COLUMNS = tuple(field.name for field in fields(Measurement))


def statistics_of(turns: Sequence[Turn]) -> dict[str, float]:
    """The columns that follow from the turns: durations over all invocations, usage per invocation."""
    ordered = sorted(duration for turn in turns for duration in turn.durations)
    count = len(ordered)
    return {
        "mean_s": statistics.fmean(ordered),
        "median_s": statistics.median(ordered),
        "p95_s": ordered[min(count - 1, int(0.95 * count))],
        "p99_s": ordered[min(count - 1, int(0.99 * count))],
        "std_s": statistics.pstdev(ordered),
        "min_s": ordered[0],
        "max_s": ordered[-1],
        **{
            field.name: sum(getattr(turn.usage, field.name) for turn in turns) / count
            for field in fields(Usage)
        },
    }
