"""Measurements of a function at one memory size, and the file that keeps them."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from trimtab.collect.functions.applications import Application
from trimtab.collect.row_file import RowFile
from trimtab.core import BadInputError
from trimtab.kernel import write_whole


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource use of several invocations: the difference of two readings of the counters."""

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
        return Usage(*(after - before for after, before in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Invocations:
    """Durations of invocations in a row, in seconds, and their resource use together."""

    durations: tuple[float, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Measurement:
    """A function at a size. Counts, bytes and CPU times are means per invocation."""

    environment: str
    application: str
    memory_mb: int
    cpus: float  # that the size buys
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
    waiting_s: float = 0.0  # ready to run but without a CPU
    probe_s: float = 0.0  # a fixed computation before each turn, outside the group: the host's speed


def statistics_of(turns: Sequence[Invocations]) -> dict[str, float]:
    """Columns that follow from the turns: durations over all invocations, usage per invocation."""
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


_ADVICE = "name another file, or measure with its seed and sizes"
_Key = tuple[str, str]  # environment and application


class MeasurementFile(RowFile):
    """A CSV file that grows by one application at a time; `NAME.applications.json` has their segments."""

    def __init__(self, path: Path, sizes: Sequence[int], seed: int) -> None:
        super().__init__(path, Measurement, "function measurements")
        self._segments_path = path.with_suffix(".applications.json")
        self._sizes = set(sizes)
        self._seed = seed

    def finished(self, applications: Sequence[Application]) -> set[_Key]:
        """Applications in the file. A file of another seed, sizes or segments is refused."""
        rows = self._rows()
        last = next(reversed(rows), None)  # the one that a kill may have cut off
        for key, lines in rows.items():
            name = key[1]
            if not name.startswith(f"f{self._seed}-"):
                raise BadInputError(f"{self.path} has {name}, drawn with another seed; {_ADVICE}")
            if lines.keys() != self._sizes and not (key == last and lines.keys() < self._sizes):
                sizes = ", ".join(str(size) for size in sorted(lines))
                raise BadInputError(
                    f"{self.path} has {name} at {sizes} MB, other sizes than given; {_ADVICE}"
                )
        segments = self._read_segments()
        for application in applications:
            if segments.get(application.name, _segments(application)) != _segments(application):
                raise BadInputError(
                    f"{self._segments_path} has another {application.name} than this version; {_ADVICE}"
                )
        return {key for key, lines in rows.items() if lines.keys() == self._sizes}

    def begin_with(self, applications: Sequence[Application]) -> None:
        """Make it ready to be appended to; an application that a kill cut off is dropped."""
        rows = self._rows().values()
        self.begin(line for lines in rows if lines.keys() == self._sizes for line in lines.values())
        segments = self._read_segments()
        segments |= {application.name: _segments(application) for application in applications}
        write_whole(self._segments_path, json.dumps(dict(sorted(segments.items())), indent=1) + "\n")

    def _rows(self) -> dict[_Key, dict[int, str]]:
        """Lines by application and size, in the file's order."""
        rows = dict[_Key, dict[int, str]]()
        for number, line, row in self.lines():
            if not row["memory_mb"].isdecimal():
                raise self.not_a_row(number)
            rows.setdefault((row["environment"], row["application"]), {})[int(row["memory_mb"])] = line
        return rows

    def _read_segments(self) -> dict[str, object]:
        try:
            segments = json.loads(self._segments_path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            segments = None
        if not isinstance(segments, dict):
            raise BadInputError(f"{self._segments_path} has no segments of applications; move it away")
        return segments


def _segments(application: Application) -> list[dict[str, object]]:
    return [{"kind": segment.kind, **segment.inputs} for segment in application.segments]
