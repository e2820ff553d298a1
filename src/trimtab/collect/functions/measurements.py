"""A row of measurements of a function at one size, and the file that keeps them."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

from trimtab.collect.functions.applications import Application
from trimtab.collect.row_file import append_rows, whole_lines
from trimtab.core import BadInputError
from trimtab.kernel import write_whole


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


_HEADER = ",".join(COLUMNS) + "\n"
_ADVICE = "name another file, or measure with its seed and sizes"
_Key = tuple[str, str]  # environment and application


class MeasurementFile:
    """A CSV file that grows by one application at a time and knows which it has.

    Beside it, in `NAME.applications.json`, stands what each application is made of.
    """

    def __init__(self, path: Path, sizes: Sequence[int], seed: int) -> None:
        self.path = path
        self._made = path.with_suffix(".applications.json")
        self._sizes = set(sizes)
        self._seed = seed

    def finished(self, applications: Sequence[Application]) -> set[_Key]:
        """Which applications it has. A file measured in another way is refused, so that nothing is mixed."""
        rows = self._rows()
        last = next(reversed(rows), None)  # the one that a kill may have cut off
        for key, lines in rows.items():
            name = key[1]
            if not name.startswith(f"f{self._seed}-"):
                raise BadInputError(f"{self.path} has {name}, drawn with another seed; {_ADVICE}")
            if lines.keys() != self._sizes and not (key == last and lines.keys() < self._sizes):
                found = ", ".join(str(size) for size in sorted(lines))
                raise BadInputError(f"{self.path} has {name} at {found} MB, not as asked; {_ADVICE}")
        made = self._read_made()
        for application in applications:
            if made.get(application.name, _made_of(application)) != _made_of(application):
                raise BadInputError(
                    f"{self._made} has another {application.name} than this Trimtab draws; {_ADVICE}"
                )
        return {key for key, lines in rows.items() if lines.keys() == self._sizes}

    def begin(self, applications: Sequence[Application]) -> None:
        """Make it ready to be appended to: what a kill cut off is dropped, and will be measured again."""
        rows = self._rows()
        whole = [line for lines in rows.values() if lines.keys() == self._sizes for line in lines.values()]
        text = "".join([_HEADER, *whole])
        if not self.path.exists() or self.path.read_text() != text:
            write_whole(self.path, text)
        made = self._read_made() | {each.name: _made_of(each) for each in applications}
        write_whole(self._made, json.dumps(dict(sorted(made.items())), indent=1) + "\n")

    def append(self, rows: Sequence[Measurement]) -> None:
        """Add an application's rows, down to the disk, or nothing."""
        append_rows(self.path, COLUMNS, [asdict(row) for row in rows])

    def _rows(self) -> dict[_Key, dict[int, str]]:
        """The whole lines by application and size, in the file's order."""
        rows = dict[_Key, dict[int, str]]()
        for number, line, row in whole_lines(self.path, COLUMNS, "function measurements"):
            if not row["memory_mb"].isdecimal():
                raise BadInputError(f"{self.path}, line {number} has no memory size; name another file")
            rows.setdefault((row["environment"], row["application"]), {})[int(row["memory_mb"])] = line
        return rows

    def _read_made(self) -> dict[str, object]:
        try:
            made = json.loads(self._made.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            made = None
        if not isinstance(made, dict):
            raise BadInputError(f"{self._made} does not say what applications are made of; move it away")
        return made


def _made_of(application: Application) -> list[dict[str, object]]:
    return [{"kind": segment.kind, **segment.inputs} for segment in application.segments]
