"""The file that describes an application's runs, and the case that a predictor completes from it.

A configuration is a memory size under a law of CPU shares (lambda, openwhisk), or one of those learned from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
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
_MOST_RUNS = 100  # configurations that have been run
_MOST_CPUS = 1000.0  # that a run keeps busy
_OVER_LIMIT = 1.1  # a run may show a little more memory than its limit, depending on the reading
_CONTRADICTION = 2.0  # two times of one configuration further apart than this cannot both be right
_UNKNOWN = math.nan

# Names of a run's figures in the file that are not those of a metric: parts of the mean time.
_SPREAD = {"min": "seconds_least", "median": "seconds_median", "deviation": "seconds_deviation"}


def _text(value: Any) -> str:
    """One printable line; empty for None."""
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
    """One run: place, time and metrics, in total and not per second; NaN where unknown."""

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
    """The file: an application, its environment and its runs."""

    application: Text = ""
    environment: Text = ""
    data: Text = ""
    observations: Annotated[tuple[ObservedRun, ...], BeforeValidator(_runs)]


Settings = tuple[float, ...]


def find_configurations(text: str, environment: str, fitted: FittedBlend) -> dict[str, Settings]:
    """Key and settings of the configuration of that name, ignoring case and spaces; of all for "all"."""
    if environment in LAWS:
        sizes = SIZES if text == ALL else (parse_memory_size(text),)
        return dict(_size(size, environment) for size in sizes)
    matrix = fitted.curves.matrix
    matches = {
        key: tuple(matrix.settings[column].tolist())
        for key, column in matrix.column_of.items()
        if text == ALL or key.lower().split() == text.lower().split()
    }
    if not matches:
        known = list(matrix.column_of)
        some = f"; there are {len(known)}, such as {', '.join(known[:3])}"
        raise BadInputError(f'no configuration is called "{text}"{did_you_mean(text, known) or some}')
    return matches


def _size(megabytes: int, environment: str) -> tuple[str, Settings]:
    """Key and settings of a memory size, with the CPUs it buys under the environment's law."""
    cpus = LAWS[environment].cpus(megabytes, _HOST_CPUS)
    known = {"memory_bytes": float(megabytes * MIB), "cpus": cpus, "nodes": 1.0, "accelerators": 0.0}
    return f"{megabytes:g}MB{_CPUS}{cpus:g}", tuple(known.get(name, math.nan) for name in SETTINGS)


def place_name(key: str) -> str:
    """The name of a configuration for people: of a memory size, without the CPUs that it buys."""
    return key.partition(_CPUS)[0]


@dataclass(frozen=True, slots=True, eq=False)
class PredictionRequest:
    """The case, its known rows, and the predictor that completes it."""

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
        return tuple(place_name(key) for key in self.case.configurations)

    def row_of(self, text: str) -> int:
        """The row of a place that was run or requested, by its readable name."""
        name = f"{parse_memory_size(text)}MB" if self.of_function else " ".join(text.split())
        lower = [place.lower() for place in self.places]
        if name.lower() not in lower:
            raise NotFoundError(
                f'"{text}" was not requested{did_you_mean(name, self.places)}; name it among the places to '
                "predict"
            )
        return lower.index(name.lower())


def read_request(path: Path, at: Sequence[str], foundation: Foundation) -> PredictionRequest:
    """Request from a YAML or JSON file of observations; `at` are sizes or configurations, or "all"."""
    described = read_user_file(path, Description, "that describes an application", _LARGEST_FILE)
    return _request(described, at, foundation, str(path), path.stem)


def make_request(data: Mapping[str, Any], at: Sequence[str], foundation: Foundation) -> PredictionRequest:
    """Request from a mapping of the form of such a file."""
    where = "the description"
    return _request(validate(Description, data, where), at, foundation, where, "application")


def _request(
    described: Description, at: Sequence[str], foundation: Foundation, where: str, name: str
) -> PredictionRequest:
    environment, application = described.environment or "lambda", described.application or one_line(name)
    corpus, fitted = foundation.for_environment(environment)
    # Settings by key; they may be NaN, so only keys can be compared.
    settings: dict[str, Settings] = {}
    runs: dict[str, list[tuple[float, Mapping[str, float]]]] = {}
    for number, run in enumerate(described.observations):
        try:
            ((key, place),) = find_configurations(
                run.memory or run.configuration, environment, fitted
            ).items()
            settings[key] = place
            memory = place[SETTINGS.index("memory_bytes")]
            runs.setdefault(key, []).append((run.time, run.metrics(memory)))
        except TrimtabError as error:
            raise BadInputError(f"{where}: observations[{number}]: {error}") from None
    merged = [_merged(f"{where}: {place_name(key)}", same) for key, same in runs.items()]
    if len(runs) > _MOST_RUNS:
        raise BadInputError(f"{where}: it ran in {len(runs)} places; keep at most {_MOST_RUNS}")
    if not at:
        raise BadInputError("nothing to predict: name sizes or configurations, or all")
    for text in at:
        for key, place in find_configurations(text, environment, fitted).items():
            settings.setdefault(key, place)
    if len(settings) == len(runs):
        raise BadInputError(
            f"nothing to predict: it has been run at {', '.join(at):.200} already; name other places"
        )
    empty = len(settings) - len(runs)
    metrics = [[shown.get(name, math.nan) for name in METRICS] for _, shown in merged]
    case = Case(
        corpus=corpus,
        application=application,
        name=application,
        environment=environment,
        configurations=tuple(settings),
        settings=np.array(list(settings.values())),
        metrics=np.array(metrics + [[math.nan] * len(METRICS)] * empty),
        seconds=np.array([seconds for seconds, _ in merged] + [math.nan] * empty),
        ok=np.arange(len(settings)) < len(runs),
        data=described.data,
    )
    return PredictionRequest(case, np.arange(len(runs)), fitted, corpus)


def _merged(
    where: str, runs: Sequence[tuple[float, Mapping[str, float]]]
) -> tuple[float, Mapping[str, float]]:
    """Geometric mean of one configuration's times, which must not contradict, and means of its metrics."""
    times = [seconds for seconds, _ in runs]
    if max(times) > _CONTRADICTION * min(times):
        raise BadInputError(
            f"{where} took {format_duration(min(times))} and {format_duration(max(times))}; "
            "such runs contradict one another, leave the wrong one out"
        )
    names = dict.fromkeys(name for _, metrics in runs for name in metrics)
    means = {name: fmean(metrics[name] for _, metrics in runs if name in metrics) for name in names}
    return geometric_mean(times), means
