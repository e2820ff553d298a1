"""The file that describes what was run, and the case that a predictor is asked to complete from it.

A configuration is a memory size under a law of CPU shares (lambda, openwhisk), or one of those learned from.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from trimtab.collect import LAWS, SIZES
from trimtab.core import (
    MIB,
    BadInputError,
    NotFoundError,
    StrictModel,
    TrimtabError,
    did_you_mean,
    format_bytes,
    format_duration,
    one_line,
    parse_bytes,
    parse_duration,
    parse_memory_size,
    quantity,
    validate,
)
from trimtab.kernel import read_user_file
from trimtab.predict.fewshot.blend import FittedBlend
from trimtab.predict.fewshot.case import METRICS, SETTINGS, Case
from trimtab.predict.fewshot.foundation import Foundation
from trimtab.predict.fewshot.predictor import Rows

ALL = "all"
_CPUS = " cpus="  # in the key of a memory size, which buys more of them under one law than another
_HOST_CPUS = 2  # of the hosts on which functions were measured
_LARGEST_FILE = 2**20  # bytes; a description has a few lines
_MOST_RUNS = 100  # configurations that have been run; a few are what this is for
_MOST_CPUS = 1000.0  # that a run keeps busy
_OVER_LIMIT = 1.1  # a run may show a little more memory than its limit, by how it was read
_CONTRADICTION = 2.0  # two times of one configuration further apart than this cannot both be right
_UNKNOWN = math.nan

# Names of a run's figures in the file that are not those of a metric: parts of the mean time.
_SPREAD = {"min": "seconds_least", "median": "seconds_median", "deviation": "seconds_deviation"}


def _text(value: Any) -> str:
    """One printable line; an empty field is as good as none."""
    return "" if value is None else one_line(value)


def _runs(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("it should be a list of at least one run, such as - {memory: 512MB, time: 240ms}")
    for number, run in enumerate(value):
        if not isinstance(run, Mapping):
            raise ValueError(
                f"run {number + 1} should be names and values, such as memory: 512MB, time: 240ms"
            )
    return value


_DURATION = quantity(parse_duration, "a duration such as 240ms or 20m")
_AMOUNT = Field(ge=0, le=1e24)  # more than any run shows
Text = Annotated[str, BeforeValidator(_text)]
Duration = Annotated[float, _DURATION, _AMOUNT]
Amount = Annotated[float, quantity(float, "a number"), _AMOUNT]
Size = Annotated[float, quantity(parse_bytes, "an amount such as 80MB"), _AMOUNT]


class ObservedRun(StrictModel):
    """One run: where, how long, and what else it showed, in all and not per second; NaN where unknown."""

    memory: Text = ""
    configuration: Text = ""
    time: Annotated[float, _DURATION, Field(ge=1e-9, le=1e10)]
    memory_used: Size = _UNKNOWN
    cpu_user: Duration = _UNKNOWN
    cpu_system: Duration = _UNKNOWN
    throttled: Duration = _UNKNOWN
    context_switches: Amount = _UNKNOWN
    involuntary_switches: Amount = _UNKNOWN
    bytes_read: Size = _UNKNOWN
    bytes_written: Size = _UNKNOWN
    bytes_received: Size = _UNKNOWN
    bytes_sent: Size = _UNKNOWN
    min: Duration = _UNKNOWN
    median: Duration = _UNKNOWN
    deviation: Duration = _UNKNOWN

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if bool(self.memory) == bool(self.configuration):
            raise ValueError("it should name where it ran once, as memory or as configuration")
        if ALL in (self.memory, self.configuration):
            raise ValueError(f'it ran in one place, not in "{ALL}"')
        for name in ("cpu_user", "cpu_system"):
            if getattr(self, name) > _MOST_CPUS * self.time:
                used, time = format_duration(getattr(self, name)), format_duration(self.time)
                raise ValueError(f"no run uses {used} of CPU ({name}) in {time}")
        return self

    def metrics(self, memory: float) -> dict[str, float]:
        """Metrics of a case, per second of the run, where its memory is limited to so many bytes."""
        if self.memory and self.memory_used > _OVER_LIMIT * memory:
            raise BadInputError(
                f"memory_used: {format_bytes(self.memory_used)} is more than the {self.memory} it had"
            )
        figures = self.model_dump(exclude={"memory", "configuration", "time", "memory_used"})
        rates = {_SPREAD.get(name, name): value / self.time for name, value in figures.items()}
        rates |= {"memory_used": self.memory_used, "memory_fraction": self.memory_used / memory}
        return {name: value for name, value in rates.items() if not math.isnan(value)}


class Description(StrictModel):
    """The file: an application, where it ran, and what its runs showed."""

    application: Text = ""
    environment: Text = ""
    data: Text = ""
    observations: Annotated[tuple[ObservedRun, ...], BeforeValidator(_runs)]


@dataclass(frozen=True, slots=True)
class KnownConfiguration:
    """A configuration: its key in the training data, and its settings."""

    key: str
    settings: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class KnownConfigurations:
    """All configurations of one environment."""

    environment: str
    known: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, fitted: FittedBlend, environment: str) -> "KnownConfigurations":
        matrix = fitted.curves.matrix
        rows = matrix.settings.tolist()
        return cls(environment, {key: tuple(rows[at]) for key, at in matrix.column_of.items()})

    def find(self, text: str) -> list[KnownConfiguration]:
        """The configuration of that name, whatever its case and spaces; every one for "all"."""
        if self.environment in LAWS:
            return [self._size(size) for size in (SIZES if text == ALL else (parse_memory_size(text),))]
        found = [
            KnownConfiguration(key, settings)
            for key, settings in self.known.items()
            if text == ALL or key.lower().split() == text.lower().split()
        ]
        if not found:
            some = f"; there are {len(self.known)}, such as {', '.join(list(self.known)[:3])}"
            meant = did_you_mean(text, self.known) or some
            raise BadInputError(f'no configuration is called "{text}"{meant}')
        return found

    def _size(self, megabytes: int) -> KnownConfiguration:
        """A memory size, with the CPUs it buys under the environment's law."""
        cpus = LAWS[self.environment].cpus(megabytes, _HOST_CPUS)
        given = {"memory_bytes": float(megabytes * MIB), "cpus": cpus, "nodes": 1.0, "accelerators": 0.0}
        key = f"{megabytes:g}MB{_CPUS}{cpus:g}"
        return KnownConfiguration(key, tuple(given.get(name, math.nan) for name in SETTINGS))


def place_name(key: str) -> str:
    """The name of a configuration for people: of a memory size, without the CPUs that it buys."""
    return key.partition(_CPUS)[0]


@dataclass(frozen=True, slots=True, eq=False)
class PredictionRequest:
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
        return tuple(place_name(key) for key in self.case.configurations)

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


def read_request(path: Path, at: Sequence[str], foundation: Foundation) -> PredictionRequest:
    """From a YAML or JSON file of observations; `at` are sizes or configurations, or "all"."""
    described = read_user_file(path, Description, "that describes an application", _LARGEST_FILE)
    return _request(described, at, foundation, str(path), path.stem)


def make_request(told: Mapping[str, Any], at: Sequence[str], foundation: Foundation) -> PredictionRequest:
    """From a mapping of the form of such a file."""
    where = "the description"
    return _request(validate(Description, told, where), at, foundation, where, "application")


def _request(
    described: Description, at: Sequence[str], foundation: Foundation, where: str, name: str
) -> PredictionRequest:
    environment, application = described.environment or "lambda", described.application or one_line(name)
    corpus, fitted = foundation.for_environment(environment)
    places = KnownConfigurations.of(fitted, environment)
    runs = _merged(_found(described.observations, places, where), where)
    if len(runs) > _MOST_RUNS:
        raise BadInputError(f"{where}: it ran in {len(runs)} places; keep at most {_MOST_RUNS}")
    if not at:
        raise BadInputError("nothing to predict: name sizes or configurations, or all")
    # Settings may be NaN, which equals nothing: a place is the same when its key is.
    settings = {run.place.key: run.place.settings for run in runs}
    for place in (found for text in at for found in places.find(text)):
        settings.setdefault(place.key, place.settings)
    if len(settings) == len(runs):
        raise BadInputError("nothing to predict: every size or configuration asked for has been run already")
    empty = len(settings) - len(runs)
    metrics = [[run.metrics.get(name, math.nan) for name in METRICS] for run in runs]
    case = Case(
        corpus=corpus,
        application=application,
        name=application,
        environment=environment,
        configurations=tuple(settings),
        settings=np.array(list(settings.values())),
        metrics=np.array(metrics + [[math.nan] * len(METRICS)] * empty),
        seconds=np.array([run.seconds for run in runs] + [math.nan] * empty),
        ok=np.arange(len(settings)) < len(runs),
        data=described.data,
    )
    return PredictionRequest(case, np.arange(len(runs)), fitted, corpus)


@dataclass(frozen=True, slots=True)
class _Run:
    """An observation at its place."""

    place: KnownConfiguration
    seconds: float
    metrics: Mapping[str, float]


def _found(observations: Iterable[ObservedRun], places: KnownConfigurations, where: str) -> list[_Run]:
    runs = []
    for number, each in enumerate(observations):
        try:
            (place,) = places.find(each.memory or each.configuration)
            memory = place.settings[SETTINGS.index("memory_bytes")]
            runs.append(_Run(place, each.time, each.metrics(memory)))
        except TrimtabError as error:
            raise BadInputError(f"{where}: observations[{number}]: {error}") from None
    return runs


def _merged(runs: Sequence[_Run], where: str) -> list[_Run]:
    """Runs of one configuration become one, the geometric mean of their times; they must not contradict."""
    found: dict[str, list[_Run]] = {}
    for run in runs:
        found.setdefault(run.place.key, []).append(run)
    merged = []
    for key, same in found.items():
        times = [run.seconds for run in same]
        if max(times) > _CONTRADICTION * min(times):
            raise BadInputError(
                f"{where}: {place_name(key)} took {format_duration(min(times))} and "
                f"{format_duration(max(times))}; such runs contradict one another, leave the wrong one out"
            )
        shown = dict.fromkeys(name for run in same for name in run.metrics)
        metrics = {name: fmean(run.metrics[name] for run in same if name in run.metrics) for name in shown}
        seconds = math.exp(sum(math.log(each) for each in times) / len(times))
        merged.append(_Run(same[0].place, seconds, metrics))
    return merged
