"""Whether outcomes still are what predictions say: do ranges hold, is there a bias, do loads grow?"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from trimtab.core import format_duration
from trimtab.predict.fewshot import Array
from trimtab.predict.fewshot.foundation.bets import alarms, rank_bets, rate_bets
from trimtab.predict.fewshot.foundation.examples import OUTCOME, Measured, measured_in
from trimtab.predict.fewshot.foundation.finding import DRIFT, USUAL_TENANT, Finding, raise_events
from trimtab.store import Event, Store, WantedEvents

_TOLERANCE = 1.2  # a bias below this factor is not worth a message
_SLOWER = 1.1  # nor is a load that slows things down by less
_RECENT = 100  # outcomes that are looked at after another
_ALL = "all predictions"


def drift_after(
    store: Store, event: int, since: float, now: float, tenant: str = USUAL_TENANT
) -> list[Finding]:
    """What a tenant's newest outcome, written as this event, shows that was not known; takes milliseconds."""

    def recent(kind: str) -> tuple[Event, ...]:
        return store.events.page(_RECENT, WantedEvents(kind, tenants=(tenant,)), str(event + 1)).items

    found = outcome_drift(recent(OUTCOME), since)
    return raise_events(store, recent(DRIFT), found, now, tenant)


def outcome_drift(events: Iterable[Event], since: float) -> list[Finding]:
    """All that outcomes of predictions made since then show, oldest first."""
    outcomes = [one for one in measured_in(events) if one.decided >= since]
    return [*coverage_drift(outcomes), *bias_drift(outcomes), *load_drift(outcomes)]


def coverage_drift(outcomes: Sequence[Measured]) -> list[Finding]:
    """Ranges that hold less often than they state."""
    first = _first_of_each(outcomes)
    coverage = min((one.predicted.coverage for one in first), default=1.0)
    missed = [not one.predicted.contains(one.seconds) for one in first]
    found = []
    for span in alarms(rate_bets(missed, max(1 - coverage, 1e-3))):
        count = len(first[span])
        held = count - sum(missed[span])
        sentence = (
            f"of the last {count} applications' outcomes {held} lay within the stated {coverage:.0%} ranges, "
            f"where {coverage * count:.0f} should"
        )
        numbers = {"outcomes": count, "held": held, "coverage": coverage}
        found.append(Finding("accuracy", _ALL, sentence, numbers, _keys(first[span])))
    return found


def bias_drift(outcomes: Sequence[Measured]) -> list[Finding]:
    """Times that lie to one side of the middle of their ranges, and clearly so.

    A sign test: more than half of them beyond the tolerance. Answers themselves lean low on purpose, so it is
    the middle of the range that they are compared with.
    """
    first = _first_of_each(outcomes)
    off = [one.seconds / math.sqrt(one.predicted.low * one.predicted.high) for one in first]
    found = []
    for word, beyond in (
        ("slower", [ratio > _TOLERANCE for ratio in off]),
        ("faster", [ratio < 1 / _TOLERANCE for ratio in off]),
    ):
        for span in alarms(rate_bets(beyond, 0.5)):
            count, ratio = len(first[span]), float(np.median(off[span]))
            sentence = (
                f"the last {count} applications' outcomes are {word} than predicted, by a factor of "
                f"{max(ratio, 1 / ratio):.2f} from the middle of their ranges"
            )
            numbers = {"outcomes": count, "ratio": ratio}
            found.append(Finding("bias", _ALL, sentence, numbers, _keys(first[span])))
    return found


def load_drift(outcomes: Sequence[Measured]) -> list[Finding]:
    """Applications that get slower at the same place, by the rank of each outcome among those before it."""
    by_application: dict[str, list[Measured]] = {}
    for one in outcomes:
        by_application.setdefault(one.application, []).append(one)
    found = []
    for application, mine in by_application.items():
        compared, bets = _against_earlier(mine)
        for span in alarms(bets):
            late = compared[span]
            ratio = _growth(mine, late[-1])
            if ratio < _SLOWER:
                continue
            sentence = (
                f"{application} takes {ratio:.2f} times as long as before at the same place, over its last "
                f"{len(late)} outcomes; now {format_duration(late[-1].seconds)} at {late[-1].place}"
            )
            numbers = {"outcomes": len(late), "ratio": ratio}
            found.append(Finding("load", application, sentence, numbers, _keys(late)))
    return found


def _first_of_each(outcomes: Sequence[Measured]) -> list[Measured]:
    """An application's first outcome; further ones would repeat its error and prove nothing new."""
    first: dict[str, Measured] = {}
    for one in outcomes:
        if one.is_prediction:
            first.setdefault(one.application, one)
    return list(first.values())


def _against_earlier(mine: Sequence[Measured]) -> tuple[list[Measured], list[Array]]:
    """Outcomes that have earlier ones at the same place, and the bets on their rank among them."""
    before: dict[str, list[float]] = {}
    compared, bets = list[Measured](), list[Array]()
    for one in mine:
        earlier = before.setdefault(one.place, [])
        if earlier:
            rank = 1 + sum(seconds < one.seconds for seconds in earlier)
            compared.append(one)
            bets.append(rank_bets(rank, len(earlier) + 1))
        earlier.append(one.seconds)
    return compared, bets


def _growth(mine: Sequence[Measured], last: Measured) -> float:
    """The median of the last quarter over that of the first, of the outcomes at one place up to this one."""
    there = [one.seconds for one in mine if one.place == last.place and one.recorded <= last.recorded]
    quarter = max(1, len(there) // 4)
    return float(np.median(there[-quarter:]) / np.median(there[:quarter]))


def _keys(some: Sequence[Measured]) -> tuple[str, ...]:
    return tuple(one.key for one in some)
