"""Records of predictions and of their measured outcomes, and the examples to learn from them.

Two kinds of events hold them: a `prediction` has the request, an `outcome` a time measured later at one
configuration with the prediction for it. The ledger stays the truth about outcomes: `catch_up` adds the
events of outcomes that were recorded without the command line.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TypeVar

import numpy as np

from trimtab.core import (
    DEFAULT_TENANT,
    BadInputError,
    Decision,
    Estimate,
    NotFoundError,
    Outcome,
    did_you_mean,
    from_plain,
    to_plain,
)
from trimtab.predict.fewshot.case import METRICS, SETTINGS, Array, Case, metrics_table, settings_table
from trimtab.predict.fewshot.foundation import Foundation
from trimtab.predict.fewshot.prediction import LAMBDA_PER_GIB_SECOND, LAMBDA_PER_REQUEST, Guarded
from trimtab.predict.fewshot.predictor import Rows
from trimtab.predict.fewshot.request import PredictionRequest
from trimtab.store import Comparison, Event, Store, compare

PREDICTION, OUTCOME = "prediction", "outcome"  # kinds of events

_AT = "time at "  # prefix of a time that was not measured at the chosen place
_PAGE = 1000  # events read at a time
_BELIEVABLE = 25.0  # a measured time further than this factor from the predicted one is a mistake of units
_SAME = 2.0  # times of one configuration further apart are of different loads; the newest counts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run that was known at the time of the request."""

    configuration: str
    seconds: float
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A stored request: `places` maps names to keys, `strange` new configurations to their settings."""

    decision: str
    asked: float
    corpus: str
    environment: str
    application: str
    data: str
    runs: tuple[KnownRun, ...]
    places: Mapping[str, str]
    strange: Mapping[str, Mapping[str, float]]
    unlike: float
    list_prices: Mapping[str, float]  # prices that come with Trimtab, where they were used


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """Seconds measured at one configuration after a decision, and the prediction for it."""

    decision: str
    application: str
    place: str
    decided: float
    recorded: float
    seconds: float
    predicted: Estimate

    @property
    def key(self) -> str:
        return f"{self.decision} {self.place} {self.recorded:.6f}"

    @property
    def is_prediction(self) -> bool:
        """True if the place had not been run before."""
        return self.predicted.low < self.predicted.high


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """An application to learn from, and its predictions that can be compared with their outcomes."""

    case: Case
    tests: tuple[tuple[Rows, int], ...]  # rows known at the request, and the row measured later


def remember(store: Store, request: PredictionRequest, answer: Guarded, decision: Decision) -> None:
    """Record the inputs of a prediction, so that an outcome of it can be learned from."""
    case, known = request.case, request.fitted.curves.matrix.column_of
    record = RequestRecord(
        decision=decision.id,
        asked=decision.created,
        corpus=request.corpus,
        environment=case.environment,
        application=case.application,
        data=case.data,
        runs=tuple(
            KnownRun(case.configurations[row], float(case.seconds[row]), _named(METRICS, case.metrics[row]))
            for row in request.known.tolist()
        ),
        places=dict(zip(request.places, case.configurations, strict=True)),
        strange={
            key: _named(SETTINGS, settings)
            for key, settings in zip(case.configurations, case.settings, strict=True)
            if key not in known
        },
        unlike=min(answer.unlike, 1e9),
        list_prices=list_prices(case.environment),
    )
    store.events.append(PREDICTION, case.application, to_plain(record), decision.created)


def list_prices(environment: str) -> dict[str, float]:
    if environment != "lambda":
        return {}
    return {"GiB-second": LAMBDA_PER_GIB_SECOND, "request": LAMBDA_PER_REQUEST}


def quantity_at(decision: Decision, place: str) -> str:
    """The name under which an outcome holds the time at one of the places of a prediction."""
    if decision.kind != "predict":
        raise BadInputError(f"decision {decision.id} is no prediction, so it has no other place")
    places = estimates(decision)
    if place not in places:
        some = f"; it is about {len(places)}, such as {', '.join(list(places)[:3])}"
        nearest = did_you_mean(place, places) or some
        raise BadInputError(f'decision {decision.id} is not about a place called "{place:.60}"{nearest}')
    return "time" if place == next(iter(places)) else f"{_AT}{place}"


def estimates(decision: Decision) -> dict[str, Estimate]:
    """The predicted time at every place of the decision, the chosen one first."""
    key, place = next(iter(decision.action.items()))
    others = [(a.action.get(key), a.estimates) for a in decision.alternatives]
    answers = [(place, decision.estimates), *others]
    return {str(where): estimates["time"] for where, estimates in answers if "time" in estimates}


def note_outcome(
    store: Store, decision: Decision, outcome: Outcome, tenant: str = DEFAULT_TENANT
) -> int | None:
    """Record the times measured after a tenant's prediction as events; returns the id of the last, if any."""
    last = None
    for record in measured_after(decision, outcome):
        last = store.events.append(OUTCOME, record.application, to_plain(record), record.recorded, tenant)
    return last


def measured_after(decision: Decision, outcome: Outcome) -> tuple[OutcomeRecord, ...]:
    """The times of an outcome, each with the place it belongs to."""
    if decision.kind != "predict":
        return ()
    predicted = estimates(decision)
    chosen = next(iter(predicted))
    times = {
        chosen if name == "time" else name.removeprefix(_AT): seconds
        for name, seconds in outcome.measured.items()
        if name == "time" or name.startswith(_AT)
    }
    about = decision.id, decision.subject
    return tuple(
        OutcomeRecord(*about, at, decision.created, outcome.recorded, seconds, predicted[at])
        for at, seconds in times.items()
        if at in predicted and 0 < seconds < math.inf
    )


def compared(decision: Decision, outcome: Outcome) -> tuple[Comparison, ...]:
    """Every measured quantity with its estimate, at the chosen place and at others."""
    chosen = next(iter(estimates(decision)), "")
    return compare(decision, outcome) + tuple(
        Comparison(f"{_AT}{record.place}", record.predicted, record.seconds)
        for record in measured_after(decision, outcome)
        if record.place != chosen
    )


def all_events(store: Store) -> tuple[Event, ...]:
    """Every event of the store, oldest first."""
    events = list[Event]()
    while page := store.events.since(events[-1].id if events else 0, _PAGE):
        events += page
    return tuple(events)


def requests_in(events: Iterable[Event]) -> tuple[RequestRecord, ...]:
    """The requests among events; records in the form of another version of Trimtab are skipped."""
    return _records(events, PREDICTION, RequestRecord)


def measured_in(events: Iterable[Event]) -> tuple[OutcomeRecord, ...]:
    """The measured times among events, each once, in the order in which they were recorded."""
    by_key = {record.key: record for record in _records(events, OUTCOME, OutcomeRecord)}
    return tuple(sorted(by_key.values(), key=lambda record: record.recorded))


def _records(events: Iterable[Event], kind: str, record: type[T]) -> tuple[T, ...]:
    records = []
    for event in events:
        if event.kind == kind:
            with contextlib.suppress(BadInputError):
                records.append(from_plain(record, event.detail))
    return tuple(records)


def catch_up(store: Store) -> tuple[Event, ...]:
    """All events, after adding those of outcomes that only the ledger has."""
    events = all_events(store)
    noted = {record.key for record in measured_in(events)}
    missing = False
    for request in requests_in(events):
        try:
            decision = store.ledger.get(request.decision)
        except NotFoundError:
            continue
        for outcome in store.ledger.outcomes(request.decision):
            if any(record.key not in noted for record in measured_after(decision, outcome)):
                tenant = json.loads(store.ledger.text(decision.id))["tenant"]
                note_outcome(store, decision, outcome, tenant)
                missing = True
    return all_events(store) if missing else events


def believable(record: OutcomeRecord) -> bool:
    """Whether a measured time can belong to the prediction, and is not a mistake of units."""
    return 1 / _BELIEVABLE <= record.seconds / record.predicted.value <= _BELIEVABLE


def examples(
    requests: Iterable[RequestRecord], outcomes: Iterable[OutcomeRecord], foundation: Foundation
) -> dict[str, list[Example]]:
    """Examples to learn from, by data set; requests for one application in one environment are joined."""
    by_decision: dict[str, list[OutcomeRecord]] = {}
    for record in outcomes:
        if believable(record):
            by_decision.setdefault(record.decision, []).append(record)
    groups: dict[tuple[str, ...], list[RequestRecord]] = {}
    for request in requests:
        if request.decision in by_decision and request.corpus in foundation.predictors:
            key = (request.corpus, request.environment, request.application, request.data)
            groups.setdefault(key, []).append(request)
    by_corpus: dict[str, list[Example]] = {}
    for (corpus, *_), same in groups.items():
        matrix = foundation.predictors[corpus].curves.matrix
        settings = {key: matrix.settings[column] for key, column in matrix.column_of.items()}
        example = _example(same, by_decision, settings)
        if example is not None:
            by_corpus.setdefault(corpus, []).append(example)
    return by_corpus


def _example(
    same: Sequence[RequestRecord],
    outcomes: Mapping[str, Sequence[OutcomeRecord]],
    settings: dict[str, Array],
) -> Example | None:
    """None where fewer than two configurations were measured: one to start from, one to predict."""
    times: dict[str, list[tuple[float, float]]] = {}
    metrics: dict[str, Mapping[str, float]] = {}
    for request in same:
        settings |= {key: settings_table(1, **named)[0] for key, named in request.strange.items()}
        for run in request.runs:
            times.setdefault(run.configuration, []).append((request.asked, run.seconds))
            metrics[run.configuration] = run.metrics
        for record in outcomes[request.decision]:
            key = request.places.get(record.place, "")
            times.setdefault(key, []).append((record.recorded, record.seconds))
    rows = {key: row for row, key in enumerate(key for key in times if key in settings)}
    if len(rows) < 2:
        return None
    first = same[0]
    case = Case(
        corpus=first.corpus,
        application=f"{first.application} (yours)",
        name=first.application,
        environment=first.environment,
        configurations=tuple(rows),
        settings=np.array([settings[key] for key in rows]),
        metrics=np.concatenate([metrics_table(1, **metrics.get(key, {})) for key in rows]),
        seconds=np.array([_typical(times[key]) for key in rows]),
        ok=np.ones(len(rows), dtype=bool),
        data=first.data,
    )
    tests = []
    for request in same:
        known = sorted({rows[run.configuration] for run in request.runs if run.configuration in rows})
        for record in outcomes[request.decision]:
            target = rows.get(request.places.get(record.place, ""))
            if known and target is not None and target not in known:
                tests.append((np.array(known, dtype=np.intp), target))
    return Example(case, tuple(tests))


def _typical(times: Sequence[tuple[float, float]]) -> float:
    """The geometric mean of the times that are near the newest; others are of another load."""
    newest = max(times)[1]
    return geometric_mean(seconds for _, seconds in times if 1 / _SAME <= seconds / newest <= _SAME)


def _named(names: Sequence[str], values: Array) -> dict[str, float]:
    """Known values by name."""
    return {name: float(value) for name, value in zip(names, values, strict=True) if not math.isnan(value)}
