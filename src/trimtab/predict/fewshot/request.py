"""The file that describes what was run, and the case that a predictor is asked to complete from it.

A configuration is a memory size under a law of CPU shares (lambda, openwhisk), or one of those learned from.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.collect import LAWS, SIZES
from trimtab.core import (
    MIB,
    BadInputError,
    NotFoundError,
    TrimtabError,
    did_you_mean,
    format_duration,
    one_line,
    parse_bytes,
    parse_duration,
    parse_memory_size,
    quoted,
    refuse_unknown,
)
from trimtab.predict.fewshot.blend import FittedBlend
from trimtab.predict.fewshot.case import SETTINGS, Case, metrics_table
from trimtab.predict.fewshot.foundation import Foundation
from trimtab.predict.fewshot.predictor import Rows

ALL = "all"
_CPUS = " cpus="  # in the key of a memory size, which buys more of them under one law than another
_HOST_CPUS = 2  # of the hosts on which functions were measured

Place = tuple[str, tuple[float, ...]]  # its key and its settings


@dataclass(frozen=True, slots=True)
class Places:
    """All there are in one environment."""

    environment: str
    known: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, fitted: FittedBlend, environment: str) -> "Places":
        matrix = fitted.curves.matrix
        rows = matrix.settings.tolist()
        return cls(environment, {key: tuple(rows[at]) for key, at in matrix.column_of.items()})

    def find(self, text: str) -> list[Place]:
        """The place of that name; every one for "all"."""
        if self.environment in LAWS:
            sizes = SIZES if text == ALL else (parse_memory_size(text),)
            return [self._size(size) for size in sizes]
        if text == ALL:
            return list(self.known.items())
        key = self._spelt(text)
        return [(key, self.known[key])]

    def _spelt(self, text: str) -> str:
        """The key of a configuration, whatever its case and spaces."""
        for key in self.known:
            if key.lower().split() == text.lower().split():
                return key
        some = f"; there are {len(self.known)}, such as {', '.join(list(self.known)[:3])}"
        raise BadInputError(f'no configuration is called "{text}"{did_you_mean(text, self.known) or some}')

    def _size(self, megabytes: int) -> Place:
        """A memory size, with the CPUs it buys under the environment's law."""
        cpus = LAWS[self.environment].cpus(megabytes, _HOST_CPUS)
        given = {"memory_bytes": float(megabytes * MIB), "cpus": cpus, "nodes": 1.0, "accelerators": 0.0}
        return f"{megabytes:g}MB{_CPUS}{cpus:g}", tuple(given.get(name, math.nan) for name in SETTINGS)


def called(key: str) -> str:
    """What people call a configuration: of a memory size, without the CPUs that it buys."""
    return key.partition(_CPUS)[0]


_LARGEST_FILE = 2**20  # bytes; a description has a few lines
_MOST = 1e24  # of anything that is counted in a run
_MOST_RUNS = 100  # configurations that have been run; a few are what this is for
_MOST_CPUS = 1000.0  # that a run keeps busy
_OVER_LIMIT = 1.1  # a run may show a little more memory than its limit, by how it was read
_SHORTEST, _LONGEST = 1e-9, 1e10  # s; no run takes less or more
_CONTRADICTION = 2.0  # two times of one configuration further apart than this cannot both be right

# A run's optional figures: metrics of that name, per run in the file and per second in a case.
_DURATIONS = ("cpu_user", "cpu_system", "throttled")
_COUNTS = ("context_switches", "involuntary_switches")
_BYTES = ("bytes_read", "bytes_written", "bytes_received", "bytes_sent")
# How the runs' times scatter: name in the file to the metric, a part of the mean.
_SPREAD = {"min": "seconds_least", "median": "seconds_median", "deviation": "seconds_deviation"}
_ABOUT = ("application", "environment", "data", "observations")
_ABOUT_A_RUN = (
    "memory", "configuration", "time", "memory_used", *_DURATIONS, *_COUNTS, *_BYTES, *_SPREAD,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The case, which of its rows are known, and the predictor to ask."""

    case: Case
    known: Rows
    fitted: FittedBlend
    corpus: str

    @property
    def of_function(self) -> bool:
        """Whether configurations are memory sizes, paid by the invocation."""
        return self.case.environment in LAWS

    @property
    def places(self) -> tuple[str, ...]:
        """The configurations as people call them."""
        return tuple(called(key) for key in self.case.configurations)

    def row_of(self, text: str) -> int:
        """The row of a place that was run or asked for, as people write it."""
        name = f"{parse_memory_size(text)}MB" if self.of_function else " ".join(text.split())
        lower = [place.lower() for place in self.places]
        if name.lower() not in lower:
            raise NotFoundError(
                f'"{text}" was not asked for{did_you_mean(name, self.places)}; name it among the places to '
                "predict"
            )
        return lower.index(name.lower())


@dataclass(frozen=True, slots=True)
class _Run:
    """One observation: where, how long, and what else it showed, in SI units per run."""

    configuration: str
    settings: tuple[float, ...]
    seconds: float
    metrics: Mapping[str, float]


def read_request(path: Path, at: Sequence[str], foundation: Foundation) -> Request:
    """From a YAML or JSON file of observations; `at` are sizes or configurations, or "all"."""
    return make_request({"application": path.stem} | _load(path), at, foundation, str(path))


def make_request(
    told: Mapping[str, Any], at: Sequence[str], foundation: Foundation, source: str = "the description"
) -> Request:
    """From what such a file would say; `source` is what sentences about it call it."""
    refuse_unknown(source, told, _ABOUT)
    environment = one_line(_given(told, "environment", "lambda"))
    application = one_line(_given(told, "application", "application"))
    corpus, fitted = foundation.for_environment(environment)
    places = Places.of(fitted, environment)
    observations = told.get("observations")
    if not isinstance(observations, Sequence) or isinstance(observations, str) or not observations:
        raise BadInputError(f"{source}: no observations; at least one run must be known")
    runs = _merged(
        [_run(source, number, each, places) for number, each in enumerate(observations, 1)], source
    )
    if len(runs) > _MOST_RUNS:
        raise BadInputError(f"{source}: it ran in {len(runs)} places; keep at most {_MOST_RUNS}")
    if not at:
        raise BadInputError("nothing to predict: name sizes or configurations, or all")
    # Settings may be NaN, which equals nothing: a place is the same when its key is.
    settings = {run.configuration: run.settings for run in runs}
    for key, place in (found for text in at for found in places.find(text)):
        settings.setdefault(key, place)
    rows = list(settings.items())
    if len(rows) == len(runs):
        raise BadInputError("nothing to predict: every size or configuration asked for has been run already")
    case = Case(
        corpus=corpus,
        application=application,
        name=application,
        environment=environment,
        configurations=tuple(key for key, _ in rows),
        settings=np.array([place for _, place in rows]),
        metrics=_metrics(runs, len(rows)),
        seconds=np.array([run.seconds for run in runs] + [math.nan] * (len(rows) - len(runs))),
        ok=np.arange(len(rows)) < len(runs),
        data=one_line(_given(told, "data", "")),
    )
    return Request(case, np.arange(len(runs)), fitted, corpus)


def _load(path: Path) -> dict[str, Any]:
    import yaml

    try:
        told = yaml.safe_load(_text(path))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise BadInputError(f"{path} cannot be read as YAML or JSON: {line}{error.problem}") from None
    except (ValueError, yaml.YAMLError) as error:
        why = next(iter(str(error).splitlines()), "it is damaged")
        raise BadInputError(f"{path} cannot be read as YAML or JSON: {why}") from None
    except RecursionError:
        raise BadInputError(f"{path} cannot be read as YAML or JSON: it is nested too deeply") from None
    if told is None:
        raise BadInputError(f"{path} is empty; trimtab predict --help shows what it should say")
    if not isinstance(told, dict):
        raise BadInputError(f"{path} is not a description of an application; see trimtab predict --help")
    return told


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name a file") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(content) > _LARGEST_FILE:
        raise BadInputError(f"{path} is larger than 1 MiB; a description of an application has a few lines")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInputError(f"{path} cannot be read as YAML or JSON: it is not text in UTF-8") from None


def _run(source: str, number: int, told: object, places: Places) -> _Run:
    where = f"{source}, observation {number}"
    if not isinstance(told, Mapping):
        raise BadInputError(
            f"{where}: a run is a set of names and values, such as memory: 512MB, time: 240ms"
        )
    refuse_unknown(where, told, _ABOUT_A_RUN)
    if "memory" in told and "configuration" in told:
        raise BadInputError(f"{where}: memory and configuration are two names for where it ran; give one")
    place = told.get("memory", told.get("configuration"))
    if place is None or told.get("time") is None:
        raise BadInputError(f"{where}: needs memory (or configuration) and time")
    if one_line(place) == ALL:
        raise BadInputError(f'{where}: "all" is not one place')
    try:
        ((configuration, settings),) = places.find(one_line(place))
        seconds = _duration("time", told["time"])
        if seconds <= 0:
            raise BadInputError(f"a time of {one_line(told['time'])} is not positive")
        if not _SHORTEST <= seconds <= _LONGEST:
            raise BadInputError(f"no run takes a time of {one_line(told['time'])}")
        return _Run(configuration, settings, seconds, _told_metrics(told, seconds, settings))
    except TrimtabError as error:
        raise BadInputError(f"{where}: {error}") from None


def _given(told: Mapping[str, Any], name: str, default: str) -> Any:
    """What is told under that name; an empty value is as good as none."""
    value = told.get(name)
    return default if value is None else value


def _told_metrics(told: Mapping[str, Any], seconds: float, settings: tuple[float, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in (*_DURATIONS, *_SPREAD):
        if name in told:
            found[_SPREAD.get(name, name)] = _duration(name, told[name]) / seconds
    for name in ("cpu_user", "cpu_system"):
        if found.get(name, 0.0) > _MOST_CPUS:
            raise BadInputError(
                f"{name}: no run uses {one_line(told[name])} of CPU in {one_line(told['time'])}"
            )
    for name in (*_COUNTS, *_BYTES):
        if name in told:
            found[name] = _count(name, told[name], name in _BYTES) / seconds
    if "memory_used" in told:
        used = _count("memory_used", told["memory_used"], is_bytes=True)
        found["memory_used"] = used
        limit = settings[SETTINGS.index("memory_bytes")]
        if limit > 0:
            found["memory_fraction"] = used / limit
        if "memory" in told and used > _OVER_LIMIT * limit:
            most, memory = one_line(told["memory_used"]), one_line(told["memory"])
            raise BadInputError(f"memory_used: {most} is more than the {memory} it had")
    return found


def _duration(name: str, value: Any) -> float:
    text = one_line(value)
    if re.match(r"-\s*[\d.]", text):
        raise BadInputError(f"{name}: {text:.40} is below zero")
    try:
        return parse_duration(text)
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from None


def _count(name: str, value: Any, is_bytes: bool) -> float:
    try:
        count = parse_bytes(one_line(value)) if is_bytes and isinstance(value, str) else float(value)
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from None
    except (TypeError, ValueError, OverflowError):
        raise BadInputError(f"{name}: {quoted(value)} is not a number") from None
    if count < 0:
        raise BadInputError(f"{name}: {quoted(value)} is below zero")
    if not count <= _MOST:
        raise BadInputError(f"{name}: {quoted(value)} is no amount that a run shows")
    return count


def _merged(runs: Sequence[_Run], source: str) -> list[_Run]:
    """Runs of one configuration become one, the geometric mean of their times; they must not contradict."""
    found: dict[str, list[_Run]] = {}
    for run in runs:
        found.setdefault(run.configuration, []).append(run)
    merged = []
    for configuration, same in found.items():
        times = [run.seconds for run in same]
        if max(times) > _CONTRADICTION * min(times):
            raise BadInputError(
                f"{source}: {called(configuration)} took {format_duration(min(times))} and "
                f"{format_duration(max(times))}; such runs contradict one another, leave the wrong one out"
            )
        shown = dict.fromkeys(name for run in same for name in run.metrics)
        metrics = {name: fmean(run.metrics[name] for run in same if name in run.metrics) for name in shown}
        seconds = math.exp(sum(math.log(each) for each in times) / len(times))
        merged.append(_Run(configuration, same[0].settings, seconds, metrics))
    return merged


def _metrics(runs: Sequence[_Run], rows: int) -> NDArray[np.float64]:
    names = sorted({name for run in runs for name in run.metrics})
    columns = {
        name: [run.metrics.get(name, math.nan) for run in runs] + [math.nan] * (rows - len(runs))
        for name in names
    }
    return metrics_table(rows, **columns)
