"""What someone ran, from a file, and where they would like to know: the case a predictor is asked about."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, TrimtabError
from trimtab.core.units import format_duration, parse_bytes, parse_duration
from trimtab.observe import LAWS
from trimtab.predict.fewshot import (
    SETTINGS,
    Case,
    FittedCurves,
    FittedOurs,
    Rows,
    metrics_table,
    settings_table,
)
from trimtab.predict.foundation.model import Foundation

_MIB = 2**20
_HOST_CPUS = 2  # of the hosts on which functions were measured
_CONTRADICTION = 2.0  # two times of one configuration further apart than this cannot both be right

# A run's optional figures, per run: name in the file to the metric, which is per second.
_DURATIONS = {"cpu_user": "cpu_user", "cpu_system": "cpu_system", "throttled": "throttled"}
_COUNTS = {"context_switches": "context_switches", "involuntary_switches": "involuntary_switches"}
_BYTES = {name: name for name in ("bytes_read", "bytes_written", "bytes_received", "bytes_sent")}
_SPREAD = {"min": "seconds_least", "median": "seconds_median", "deviation": "seconds_deviation"}


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The case, which of its rows are known, and the predictor to ask."""

    case: Case
    known: Rows
    fitted: FittedOurs
    corpus: str


@dataclass(frozen=True, slots=True)
class _Run:
    """One observation: where, how long, and what else it showed, in SI units per run."""

    configuration: str
    settings: tuple[float, ...]
    seconds: float
    metrics: Mapping[str, float]


def read_request(path: Path, at: Sequence[str], foundation: Foundation) -> Request:
    """From a YAML or JSON file of observations; `at` are sizes or configurations, or "all"."""
    told = _load(path)
    environment = str(told.get("environment", "lambda"))
    corpus, fitted = foundation.for_environment(environment)
    places = _Places.of(fitted, environment)
    observations = told.get("observations")
    if not isinstance(observations, list) or not observations:
        raise BadInputError(f"{path}: no observations; at least one run must be known")
    runs = _merged([_run(path, number, each, places) for number, each in enumerate(observations, 1)], path)
    wanted = [place for text in at for place in places.find(text)]
    rows = [(run.configuration, run.settings) for run in runs]
    rows += [place for place in dict.fromkeys(wanted) if place[0] not in {key for key, _ in rows}]
    if len(rows) == len(runs):
        raise BadInputError("nothing to predict: every size or configuration asked for has been run already")
    case = Case(
        corpus=corpus,
        application=str(told.get("application", path.stem)),
        name=str(told.get("application", path.stem)),
        environment=environment,
        configurations=tuple(key for key, _ in rows),
        settings=np.array([settings for _, settings in rows]),
        metrics=_metrics(runs, len(rows)),
        seconds=np.array([run.seconds for run in runs] + [math.nan] * (len(rows) - len(runs))),
        ok=np.arange(len(rows)) < len(runs),
        data=str(told.get("data", "")),
    )
    return Request(case, np.arange(len(runs)), fitted, corpus)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where things can run: sizes under a CPU law, or the configurations that were learned from."""

    environment: str
    known: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, fitted: FittedOurs, environment: str) -> "_Places":
        curves = next(member for member in fitted.members if isinstance(member, FittedCurves))
        rows = curves.matrix.settings.tolist()
        return cls(environment, {key: tuple(rows[at]) for key, at in curves.matrix.column_of.items()})

    def find(self, text: str) -> list[tuple[str, tuple[float, ...]]]:
        """The place of that name; every one for "all"."""
        law = LAWS.get(self.environment)
        if law is not None:
            if text == "all":
                return [self.size(size) for size in (128, 256, 512, 1024, 2048, 3008)]
            return [self.size(round(_megabytes(text)))]
        if text == "all":
            return list(self.known.items())
        if text not in self.known:
            some = ", ".join(list(self.known)[:3])
            raise BadInputError(
                f'no configuration is called "{text}"; there are {len(self.known)}, such as {some}'
            )
        return [(text, self.known[text])]

    def size(self, megabytes: int) -> tuple[str, tuple[float, ...]]:
        """A memory size, with the CPUs it buys under the environment's law."""
        cpus = LAWS[self.environment].cpus(megabytes, _HOST_CPUS)
        settings = settings_table(1, memory_bytes=megabytes * _MIB, cpus=cpus, nodes=1.0, accelerators=0.0)
        return f"{megabytes:g}MB cpus={cpus:g}", tuple(settings[0].tolist())


def _load(path: Path) -> dict[str, Any]:
    import yaml

    try:
        told = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInputError(f"{path} cannot be read as YAML or JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(told, dict):
        raise BadInputError(f"{path} is not a description of an application; see trimtab predict --help")
    return told


def _run(path: Path, number: int, told: object, places: _Places) -> _Run:
    where = f"{path}, observation {number}"
    if not isinstance(told, dict):
        raise BadInputError(
            f"{where}: a run is a set of names and values, such as memory: 512MB, time: 240ms"
        )
    place = told.get("memory", told.get("configuration"))
    if place is None or "time" not in told:
        raise BadInputError(f"{where}: needs memory (or configuration) and time")
    if str(place) == "all":
        raise BadInputError(f'{where}: "all" is not one place')
    try:
        ((configuration, settings),) = places.find(str(place))
        seconds = parse_duration(str(told["time"]))
        if seconds <= 0:
            raise BadInputError(f"a time of {told['time']} is not positive")
        return _Run(configuration, settings, seconds, _told_metrics(told, seconds, settings))
    except TrimtabError as error:
        raise BadInputError(f"{where}: {error}") from None


def _told_metrics(told: Mapping[str, Any], seconds: float, settings: tuple[float, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, metric in _DURATIONS.items():
        if name in told:
            found[metric] = parse_duration(str(told[name])) / seconds
    for name, metric in (*_COUNTS.items(), *_BYTES.items()):
        if name in told:
            found[metric] = _count(name, told[name], name in _BYTES) / seconds
    for name, metric in _SPREAD.items():
        if name in told:
            found[metric] = parse_duration(str(told[name])) / seconds
    if "memory_used" in told:
        used = parse_bytes(str(told["memory_used"]))
        found["memory_used"] = used
        limit = settings[SETTINGS.index("memory_bytes")]
        if limit > 0:
            found["memory_fraction"] = used / limit
    return found


def _count(name: str, value: Any, is_bytes: bool) -> float:
    try:
        count = parse_bytes(str(value)) if is_bytes and isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise BadInputError(f"{name}: {value!r} is not a number") from None
    if not count >= 0:
        raise BadInputError(f"{name}: {value!r} is below zero")
    return count


def _merged(runs: Sequence[_Run], path: Path) -> list[_Run]:
    """Runs of one configuration become one, with geometric mean time; they must not contradict."""
    found: dict[str, list[_Run]] = {}
    for run in runs:
        found.setdefault(run.configuration, []).append(run)
    merged = []
    for configuration, same in found.items():
        times = [run.seconds for run in same]
        if max(times) > _CONTRADICTION * min(times):
            raise BadInputError(
                f"{path}: {configuration} took {format_duration(min(times))} and "
                f"{format_duration(max(times))}; such runs contradict one another, leave the wrong one out"
            )
        metrics = {name: value for run in same for name, value in run.metrics.items()}
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


def _megabytes(text: str) -> float:
    """Platforms of functions write MB for 2^20 bytes."""
    lowered = text.lower()
    count = parse_bytes(text)
    megabytes = count / (_MIB if "ib" in lowered else 10**6)
    if not 1 <= megabytes <= 10**6:
        raise BadInputError(f"{text} is not a memory size for a function, such as 512MB")
    return megabytes
