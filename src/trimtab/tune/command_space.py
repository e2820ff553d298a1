"""Any space of configurations that a user describes, measured by a command of theirs.

A CSV file has one row per configuration: a column for each setting, and `price` in dollars per hour. A YAML
file has lists of values for each setting (all combinations are configurations), a rule for the price, the
command, and how it is measured. `{setting}` in the command stands for the configuration's value.
"""

import contextlib
import csv
import itertools
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from trimtab.collect import FAILED, OK, TIMED_OUT, Turn
from trimtab.core import (
    HOUR,
    BadInputError,
    Command,
    Name,
    Scalar,
    Seconds,
    StrictModel,
    did_you_mean,
    format_duration,
    one_line,
    parse_bytes,
    validate,
)
from trimtab.kernel import die_with_parent, read_user_file
from trimtab.predict import Array, Case, metrics_table, settings_table
from trimtab.tune.opinion import Opinion
from trimtab.tune.space import Space
from trimtab.tune.trials import Trial

_MOST = 5000  # configurations
_GRACE = 2.0  # s between the request to end and the kill
_KNOWN = {
    "cpus": "cpus",
    "memory": "memory_bytes",
    "memory_bytes": "memory_bytes",
    "nodes": "nodes",
    "machines": "nodes",
    "workers": "nodes",
    "batch": "batch_size",
    "batch_size": "batch_size",
    "accelerators": "accelerators",
    "gpus": "accelerators",
}
"""Settings by the names of `predict.fewshot.SETTINGS`, whose meaning the search knows."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_MEASUREMENT_COLUMNS = ("workload", "seconds")

Value = int | float | str
_SettingValue = Annotated[
    # YAML's true and false are words here: a command takes nothing else.
    Value, BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else value)
]
PriceRule = float | dict[str, dict[str, float] | Literal["times"]]
"""Dollars per hour, or for each setting a table of factors by value, or "times" for the value itself."""


def _price_rule(value: Any) -> PriceRule:
    right = "it should be dollars per hour, or by setting a table of dollars by value, or times"

    def amount(number: Any) -> float:
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
            raise ValueError(right)
        return float(number)

    if not isinstance(value, Mapping):
        return amount(value)
    if not value:
        raise ValueError(right)
    return {
        str(name): "times" if part == "times" else {str(k): amount(v) for k, v in part.items()}
        for name, part in value.items()
        if part == "times" or isinstance(part, Mapping) or amount(part)
    }


class SpaceFile(StrictModel):
    """A space of configurations in YAML, with the command that measures one."""

    command: Command | None = None
    name: Name | None = None
    settings: dict[str, list[_SettingValue]] | None = None
    configurations: str | None = None
    price: Annotated[Any, BeforeValidator(_price_rule)] = None
    measure: Literal["time", "printed"] = "time"
    timeout: Annotated[Seconds, Field(gt=0)] = HOUR
    folder: str = "."
    others: str | None = None


@dataclass(frozen=True, slots=True)
class PricedSettings:
    """One configuration: its settings, and dollars per second of all of it."""

    settings: Mapping[str, Value]
    price_per_second: float

    @property
    def name(self) -> str:
        """A name such as "instance=m5.large, nodes=4"."""
        return ", ".join(f"{name}={_written(value)}" for name, value in self.settings.items())

    @property
    def action(self) -> Mapping[str, Scalar]:
        return dict(self.settings)

    @property
    def plain(self) -> Mapping[str, object]:
        return {"configuration": self.name, "settings": dict(self.settings)}


@dataclass(frozen=True)
class CommandSpace:
    """Configurations, and the command that measures one of them. A run of it is one step."""

    name: str
    setups: tuple[PricedSettings, ...]
    command: tuple[str, ...]
    folder: Path
    measure: str
    timeout: float

    def words(self, row: int) -> list[str]:
        """The command for one configuration."""
        values = {name: _written(value) for name, value in self.setups[row].settings.items()}
        return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in self.command]

    @cached_property
    def space(self) -> Space:
        """The configurations as searches see them."""
        rows = [setup.settings for setup in self.setups]
        price = np.array([setup.price_per_second for setup in self.setups])
        columns, extra = dict[str, Array](), list[Array]()
        for name in rows[0]:
            values = [row[name] for row in rows]
            amounts = _amounts(name, values)
            known = _KNOWN.get(name.lower())
            if known and amounts is not None and (amounts > 0).all() and known not in columns:
                columns[known] = amounts
            else:
                extra += _coordinates(values)
        columns["price_per_hour"] = price * HOUR / columns.get("nodes", np.ones(len(rows)))
        names = tuple(setup.name for setup in self.setups)
        places = np.column_stack(extra) if extra else None
        return Space(names, settings_table(len(rows), **columns), price, extra=places)

    @property
    def steps(self) -> Array:
        return np.ones(len(self.setups))

    @property
    def identity(self) -> list[Any]:
        """The parts of the space that trials must share to be compared."""
        configurations = [[dict(setup.settings), setup.price_per_second] for setup in self.setups]
        return [list(self.command), str(self.folder), self.measure, configurations]


@dataclass(frozen=True, slots=True)
class SpaceSource:
    """The files of a space: SPACE.yaml or CSV, a command for a CSV, measurements of other workloads."""

    path: Path
    command: str | None = None
    measurements: Path | None = None

    def read(self) -> CommandSpace:
        """The space, checked."""
        path, folder = self.path, self.path.absolute().parent
        is_csv = path.suffix.lower() == ".csv"
        file = SpaceFile() if is_csv else read_user_file(path, SpaceFile, "that describes a space")
        if self.command is not None and file.command is not None:
            raise BadInputError(f"{path} has a command already; leave out --command, or remove it there")
        command = file.command
        if self.command:
            command = validate(SpaceFile, {"command": self.command}, "--command").command
        if command is None:
            where = "name it with --command" if is_csv else "add the field command, or name it with --command"
            raise BadInputError(f"{path}: there is no command that measures a configuration; {where}")
        if is_csv or file.configurations is not None:
            table = path if is_csv else folder / str(file.configurations)
            if file.settings is not None or (file.price is not None and not is_csv):
                raise BadInputError(
                    f"{path}: configurations names a CSV file, which has the settings and prices; leave out"
                    " settings and price"
                )
            setups = _rows_of_csv(table)
        else:
            setups = _combinations(path, file)
        if len(setups) > _MOST:
            raise BadInputError(f"{path} has {len(setups):,} configurations; the most is {_MOST:,}")
        _check_placeholders(path, command, list(setups[0].settings))
        place = folder / file.folder
        if not place.is_dir():
            raise BadInputError(f"{path}: folder is {file.folder}; there is no folder {place}")
        name = file.name or re.sub(r"[^\w.-]+", "-", path.stem)[:63]
        return CommandSpace(name, setups, command, place, file.measure, file.timeout)

    def others(self, space: CommandSpace, tell: Callable[[str], None]) -> list[Case]:
        """Other workloads' measurements in configurations of the space."""
        path = self.measurements
        if path is None and self.path.suffix.lower() != ".csv":
            named = read_user_file(self.path, SpaceFile, "that describes a space").others
            path = self.path.absolute().parent / named if named else None
        if path is None:
            return []
        cases, outside = _cases(path, space)
        if outside:
            tell(f"{path}: {outside} measurements of configurations outside the space are not used")
        tell(f"{path} has measurements of {len(cases)} other workloads")
        return cases


def _rows_of_csv(path: Path) -> tuple[PricedSettings, ...]:
    """One configuration per row."""
    columns, rows = _read_csv(path)
    if "price" not in columns:
        raise BadInputError(
            f"{path} has no column price{did_you_mean('price', columns)}; it is dollars per hour of a"
            " configuration"
        )
    if len(columns) < 2:
        raise BadInputError(f"{path} has no column but price; a configuration needs a setting at least")
    lines, setups = dict[str, int](), list[PricedSettings]()
    for line, row in rows:
        settings = {name: _value(row[name]) for name in columns if name != "price"}
        setup = PricedSettings(settings, _positive(path, line, "price", row["price"]) / HOUR)
        if (first := lines.setdefault(setup.name, line)) != line:
            raise BadInputError(f"{path}, line {line}: {setup.name} is there twice, first in line {first}")
        setups.append(setup)
    return tuple(setups)


def _combinations(path: Path, file: SpaceFile) -> tuple[PricedSettings, ...]:
    """All combinations of the settings' values, each with its price."""
    if not file.settings:
        raise BadInputError(f"{path}: the space is empty; settings should list the values of each setting")
    for name, values in file.settings.items():
        if not values:
            raise BadInputError(f"{path}: settings.{name} is empty; list the values to choose from")
        if len({_written(value) for value in values}) < len(values):
            raise BadInputError(f"{path}: settings.{name} has a value twice; name each once")
    if file.price is None:
        raise BadInputError(f"{path}: price is missing; it is dollars per hour, or a rule for each setting")
    if math.prod(len(values) for values in file.settings.values()) > _MOST:
        raise BadInputError(f"{path}: settings have more than {_MOST:,} combinations, which is the most")
    combinations = itertools.product(*file.settings.values())
    rows = [dict(zip(file.settings, values, strict=True)) for values in combinations]
    return tuple(PricedSettings(row, _price(path, file.price, row) / HOUR) for row in rows)


def _price(path: Path, rule: PriceRule, row: Mapping[str, Value]) -> float:
    """Dollars per hour: a number, or the product over settings of a table's entry or the value itself."""
    if not isinstance(rule, Mapping):
        return rule
    price = 1.0
    for name, part in rule.items():
        if name not in row:
            near = f"{did_you_mean(name, list(row))}; there are {', '.join(row)}"
            raise BadInputError(f"{path}: price.{one_line(name):.40} is no setting{near}")
        value = row[name]
        if part != "times":
            if _written(value) not in part:
                raise BadInputError(f"{path}: price.{name} has no entry for {_written(value)}")
            price *= part[_written(value)]
        elif isinstance(value, str) or not value > 0:
            raise BadInputError(f"{path}: price.{name} is times, but {_written(value)} is no positive number")
        else:
            price *= value
    return price


def _check_placeholders(path: Path, command: Sequence[str], names: Sequence[str]) -> None:
    used = {found for word in command for found in _PLACEHOLDER.findall(word)}
    for name in sorted(used - set(names)):
        raise BadInputError(
            f"{path}: the command has {{{name}}}, which is no setting{did_you_mean(name, names)}; there are"
            f" {', '.join(names)}"
        )
    if not used:
        raise BadInputError(
            f"{path}: the command has no placeholder such as {{{names[0]}}}, so it is the same for all"
            " configurations"
        )


def _cases(path: Path, space: CommandSpace) -> tuple[list[Case], int]:
    """The workloads of a file of measurements; and how many of its rows are outside the space."""
    columns, rows = _read_csv(path)
    names = list(space.setups[0].settings)
    required = (*_MEASUREMENT_COLUMNS, *names)
    for column in required:
        if column not in columns:
            raise BadInputError(f"{path} has no column {column}; measurements need {', '.join(required)}")
    row_of = {setup.name: row for row, setup in enumerate(space.setups)}
    measured = dict[str, dict[int, float]]()
    outside = 0
    for line, row in rows:
        if not row["workload"]:
            raise BadInputError(f"{path}, line {line}: workload is empty; it is a name")
        place = row_of.get(PricedSettings({name: _value(row[name]) for name in names}, 1.0).name)
        if place is None:
            outside += 1
            continue
        own = measured.setdefault(row["workload"], {})
        if place in own:
            raise BadInputError(f"{path}, line {line} measures what an earlier line did; keep one of them")
        text = row["seconds"]
        own[place] = _positive(path, line, "seconds", text) if text else math.nan
    cases = []
    for name, own in measured.items():
        places, seconds = list(own), np.array(list(own.values()))
        configurations = tuple(space.space.names[place] for place in places)
        settings = space.space.settings[places]
        metrics = metrics_table(len(places))
        cases.append(
            Case("space", name, name, "", configurations, settings, metrics, seconds, ~np.isnan(seconds))
        )
    return cases, outside


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV file, and its rows with their line numbers."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None
    columns = [name.strip() for name in reader.fieldnames or ()]
    if len(set(columns)) < len(columns) or "" in columns:
        raise BadInputError(f"{path}: every column needs a name of its own; there are {', '.join(columns)}")
    if not rows:
        raise BadInputError(f"{path} has no row; it needs one for each configuration or measurement")
    for line, row in rows:
        if None in row or None in row.values():
            raise BadInputError(f"{path}, line {line} has not as many fields as the header")
    return columns, [(line, {k.strip(): v.strip() for k, v in row.items()}) for line, row in rows]


def _positive(path: Path, line: int, column: str, text: str) -> float:
    try:
        number = float(text.removeprefix("$"))
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        shown = f"{one_line(text)!r:.40}"
        raise BadInputError(f"{path}, line {line}: {column} is {shown}; it is a number above zero")
    return number


def _value(text: str) -> Value:
    """A number where the text is one as Python writes it, so that it is written as it was read."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if _written(kind(text)) == text:
                return kind(text)
    return text


def _written(value: Value) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _amounts(name: str, values: Sequence[Value]) -> Array | None:
    """Values as numbers, with units for memory; None where one is no number."""
    try:
        if name.lower() == "memory":
            return np.array([parse_bytes(v) if isinstance(v, str) else float(v) for v in values])
        return np.array([float(value) for value in values if not isinstance(value, bool)])
    except (BadInputError, ValueError):
        return None


def _coordinates(values: Sequence[Value]) -> list[Array]:
    """Coordinates of a setting: log2 of amounts, a scale of 0..2 for other numbers, else one per value."""
    if all(isinstance(value, int | float) for value in values):
        numbers = np.array(values, dtype=float)
        if (numbers > 0).all():
            return [np.log2(numbers)]
        span = float(np.ptp(numbers))
        return [2 * (numbers - numbers.min()) / (span or 1.0)]
    kinds = sorted({_written(value) for value in values})
    return [np.array([float(_written(value) == kind) for value in values]) / 0.7 for kind in kinds]


@dataclass(frozen=True, slots=True)
class CommandTrials:
    """Runs the command of a space; measured is its run time, or the number it prints last."""

    space: CommandSpace

    name = "this machine"
    stops_by_price = False  # a trial is a whole run, and the number of later runs is not known

    def run(self, row: int, worth: Callable[[Turn], bool]) -> Trial:
        space, setup = self.space, self.space.setups[row]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            begin = time.monotonic()
            status = self._ended(space.words(row), output, errors)
            seconds = time.monotonic() - begin
            reason = _failure(status, space.timeout, _last_line(errors) or _last_line(output))
            measured = None
            if status == 0:
                measured = seconds if space.measure == "time" else _printed(space, row, _last_line(output))
        outcome = OK if status == 0 else TIMED_OUT if status is None else FAILED
        price = seconds * setup.price_per_second
        return Trial(setup.name, outcome, 1.0, seconds, price, time.time(), 1, measured, None, None, reason)

    def expected_seconds(self, row: int, trials: Sequence[Trial], expected: Opinion | None) -> float | None:
        if self.space.measure == "time" and expected is not None:
            return expected.time.value
        took = [trial.seconds for trial in trials]
        return sum(took) / len(took) if took else None

    def clear(self) -> None:
        """A command dies with the session that started it."""

    def _ended(self, words: Sequence[str], output: Any, errors: Any) -> int | None:
        """The exit status of the command; None where it ran into the timeout. No process of it is left."""
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        try:
            child = subprocess.Popen(
                words,
                cwd=self.space.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                process_group=0,
                preexec_fn=prepare,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise BadInputError(f'the command "{words[0]}" cannot be started: {reason}') from None
        try:
            return child.wait(self.space.timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):  # ends the rest of the process group
                try:
                    os.killpg(child.pid, number)
                except ProcessLookupError:
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_GRACE)


def _failure(status: int | None, timeout: float, last: str) -> str:
    output = f": {last:.200}" if last else ""
    if status is None:
        return f"it took longer than the timeout of {format_duration(timeout)}"
    if status < 0:
        return f"it was killed by {signal.Signals(-status).name}{output}"
    return f"it ended with status {status}{output}" if status else ""


def _printed(space: CommandSpace, row: int, last: str) -> float:
    """The seconds that the command printed as the last word of its last line."""
    word = last.split()[-1] if last else ""
    try:
        seconds = float(word)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadInputError(
            f"{space.setups[row].name}: the command printed {one_line(last)!r:.60} last; with measure:"
            " printed, its last word is the seconds of the whole workload, a number above zero"
        )
    return seconds


def _last_line(file: Any) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 4096))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
