"""Records of predictions and of what was measured afterwards, and the examples to learn from them.

Two kinds of events hold them: a `prediction` has what the request said, an `outcome` what was measured later
at one configuration and what had been predicted for it. The ledger stays the truth about outcomes: `catch_up`
adds the events of outcomes that were recorded without the command line.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.core import (
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
DEFAULT_TENANT = "default"

_AT = "time at "  # before the place, of a time that was not measured at the chosen one
_PAGE = 1000  # events read at a time
_BELIEVABLE = 25.0  # a measured time further than this factor from the predicted one is a slip of the pen
_SAME = 2.0  # times of one configuration further apart are not of the same thing; the newest counts


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run that was known when the question was asked."""

    configuration: str
    seconds: float
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request as it is remembered: `places` are names to keys, `strange` the settings of new ones."""

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
    list_prices: Mapping[str, float]  # that Trimtab itself knows, where they were used


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
        """Key of the measurement, whichever way it was recorded."""
        return f"{self.decision} {self.place} {self.recorded:.6f}"

    @property
    def is_prediction(self) -> bool:
        """Whether the place had not been run before."""
        return self.predicted.low < self.predicted.high


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """An application to learn from, and its predictions that can be compared with what came of them."""

    case: Case
    tests: tuple[tuple[Rows, int], ...]  # rows known when it was asked, and the row measured later


def remember(store: Store, request: PredictionRequest, found: Guarded, decision: Decision) -> None:
    """Keep what a prediction was made from, so that an outcome of it can be learned from."""
    case, known = request.case, request.fitted.curves.matrix.column_of
    asked = RequestRecord(
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
        unlike=min(found.unlike, 1e9),
        list_prices=list_prices(case.environment),
    )
    store.events.append(PREDICTION, case.application, to_plain(asked), decision.created)


def list_prices(environment: str) -> dict[str, float]:
    """Prices in dollars that come with Trimtab itself."""
    if environment != "lambda":
        return {}
    return {"GiB-second": LAMBDA_PER_GIB_SECOND, "request": LAMBDA_PER_REQUEST}


def quantity_at(decision: Decision, place: str) -> str:
    """The name under which an outcome holds the time at one of the places of a prediction."""
    if decision.kind != "predict":
        raise BadInputError(f"decision {decision.id} is no prediction, so it knows of no other place")
    there = estimates(decision)
    if place not in there:
        some = (
            did_you_mean(place, there) or f"; it is about {len(there)}, such as {', '.join(list(there)[:3])}"
        )
        raise BadInputError(f'decision {decision.id} is not about a place called "{place:.60}"{some}')
    return "time" if place == next(iter(there)) else f"{_AT}{place}"


def estimates(decision: Decision) -> dict[str, Estimate]:
    """The predicted time at every place of the decision, the chosen one first."""
    key, place = next(iter(decision.action.items()))
    answers = [
        (place, decision.estimates),
        *((a.action.get(key), a.estimates) for a in decision.alternatives),
    ]
    return {str(where): guesses["time"] for where, guesses in answers if "time" in guesses}


def note_outcome(
    store: Store, decision: Decision, outcome: Outcome, tenant: str = DEFAULT_TENANT
) -> int | None:
    """Keep the times measured after a tenant's prediction, as events; the last one's id, None of none."""
    last = None
    for each in measured_after(decision, outcome):
        last = store.events.append(OUTCOME, each.application, to_plain(each), each.recorded, tenant)
    return last


def measured_after(decision: Decision, outcome: Outcome) -> tuple[OutcomeRecord, ...]:
    """The times of an outcome, each with the place it belongs to."""
    if decision.kind != "predict":
        return ()
    there = estimates(decision)
    chosen = next(iter(there))
    times = {
        chosen if name == "time" else name.removeprefix(_AT): seconds
        for name, seconds in outcome.measured.items()
        if name == "time" or name.startswith(_AT)
    }
    return tuple(
        OutcomeRecord(
            decision.id, decision.subject, at, decision.created, outcome.recorded, seconds, there[at]
        )
        for at, seconds in times.items()
        if at in there and 0 < seconds < math.inf
    )


def compared(decision: Decision, outcome: Outcome) -> tuple[Comparison, ...]:
    """Every measured quantity beside its estimate, those at other places than the chosen one too."""
    chosen = next(iter(estimates(decision)), "")
    return compare(decision, outcome) + tuple(
        Comparison(f"{_AT}{one.place}", one.predicted, one.seconds)
        for one in measured_after(decision, outcome)
        if one.place != chosen
    )


def all_events(store: Store) -> tuple[Event, ...]:
    """Every event of the store, oldest first."""
    found = list[Event]()
    while page := store.events.since(found[-1].id if found else 0, _PAGE):
        found += page
    return tuple(found)


def asked_in(events: Iterable[Event]) -> tuple[RequestRecord, ...]:
    """The requests among events; what another version of Trimtab wrote in another form is passed over."""
    return _of_kind(events, PREDICTION, RequestRecord)


def measured_in(events: Iterable[Event]) -> tuple[OutcomeRecord, ...]:
    """The measured times among events, each once, in the order in which they were recorded."""
    found = {one.key: one for one in _of_kind(events, OUTCOME, OutcomeRecord)}
    return tuple(sorted(found.values(), key=lambda one: one.recorded))


def catch_up(store: Store) -> tuple[Event, ...]:
    """All events, after those were added that the ledger has outcomes for and the events do not."""
    events = all_events(store)
    noted = {one.key for one in measured_in(events)}
    missing = False
    for asked in asked_in(events):
        try:
            decision = store.ledger.get(asked.decision)
        except NotFoundError:
            continue
        for outcome in store.ledger.outcomes(asked.decision):
            if any(one.key not in noted for one in measured_after(decision, outcome)):
                tenant = json.loads(store.ledger.text(decision.id))["tenant"]
                note_outcome(store, decision, outcome, tenant)
                missing = True
    return all_events(store) if missing else events


def believable(one: OutcomeRecord) -> bool:
    """Whether a measured time can be of what was predicted, and not a slip of a unit."""
    return 1 / _BELIEVABLE <= one.seconds / one.predicted.value <= _BELIEVABLE


def examples(
    asked: Iterable[RequestRecord], outcomes: Iterable[OutcomeRecord], foundation: Foundation
) -> dict[str, list[Example]]:
    """Examples to learn from, by data set; requests about one application in one environment are one."""
    by_decision: dict[str, list[OutcomeRecord]] = {}
    for one in outcomes:
        if believable(one):
            by_decision.setdefault(one.decision, []).append(one)
    groups: dict[tuple[str, ...], list[RequestRecord]] = {}
    for each in asked:
        if each.decision in by_decision and each.corpus in foundation.predictors:
            key = (each.corpus, each.environment, each.application, each.data)
            groups.setdefault(key, []).append(each)
    found: dict[str, list[Example]] = {}
    for (corpus, *_), same in groups.items():
        matrix = foundation.predictors[corpus].curves.matrix
        columns = {key: matrix.settings[column] for key, column in matrix.column_of.items()}
        example = _example(same, by_decision, columns)
        if example is not None:
            found.setdefault(corpus, []).append(example)
    return found


def _example(
    same: Sequence[RequestRecord],
    outcomes: Mapping[str, Sequence[OutcomeRecord]],
    columns: Mapping[str, Array],
) -> Example | None:
    """None where fewer than two configurations were measured: there is nothing to go from or to."""
    settings = dict(columns)
    times: dict[str, list[tuple[float, float]]] = {}
    shown: dict[str, Mapping[str, float]] = {}
    for each in same:
        settings |= {key: settings_table(1, **named)[0] for key, named in each.strange.items()}
        for run in each.runs:
            times.setdefault(run.configuration, []).append((each.asked, run.seconds))
            shown[run.configuration] = run.metrics
        for one in outcomes[each.decision]:
            times.setdefault(each.places.get(one.place, ""), []).append((one.recorded, one.seconds))
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
        metrics=np.concatenate([metrics_table(1, **shown.get(key, {})) for key in rows]),
        seconds=np.array([_typical(times[key]) for key in rows]),
        ok=np.ones(len(rows), dtype=bool),
        data=first.data,
    )
    return Example(case, tuple(_tests(same, outcomes, rows)))


def _tests(
    same: Sequence[RequestRecord], outcomes: Mapping[str, Sequence[OutcomeRecord]], rows: Mapping[str, int]
) -> Iterable[tuple[Rows, int]]:
    for each in same:
        known = sorted({rows[run.configuration] for run in each.runs if run.configuration in rows})
        for one in outcomes[each.decision]:
            target = rows.get(each.places.get(one.place, ""))
            if known and target is not None and target not in known:
                yield np.array(known, dtype=np.intp), target


def _typical(times: Sequence[tuple[float, float]]) -> float:
    """The geometric mean of the times that are like the newest; those far from it are of another load."""
    newest = max(times)[1]
    like = [math.log(seconds) for _, seconds in times if 1 / _SAME <= seconds / newest <= _SAME]
    return math.exp(sum(like) / len(like))


def _named(names: Sequence[str], values: Array) -> dict[str, float]:
    """Known values by name."""
    return {name: float(value) for name, value in zip(names, values, strict=True) if not math.isnan(value)}


def _of_kind(events: Iterable[Event], kind: str, made: Callable[..., Any]) -> tuple[Any, ...]:
    found = []
    for event in events:
        if event.kind == kind:
            try:
                found.append(from_plain(made, event.detail))  # type: ignore[arg-type]
            except BadInputError:
                continue
    return tuple(found)
