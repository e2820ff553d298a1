"""Drift: do intervals still hold, do predictions lean to one side, have loads, inputs or prices changed?

The test may be repeated after every observation (a betting martingale): each observation multiplies the stake
by how much likelier a change makes it, and before each a fresh unit is staked, so that a change is found
however late it comes. Without a change the stake after n observations is at most n on average, so the chance
that it ever reaches `LIMIT` within them is at most n / LIMIT. A test with a fixed level has no such bound
when repeated.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog import OfferTable
from trimtab.core import Decision, format_duration
from trimtab.predict.fewshot.blend import FittedBlend
from trimtab.predict.fewshot.case import SCALES, SETTINGS, Array
from trimtab.predict.fewshot.foundation import Foundation, replayed
from trimtab.predict.fewshot.outcomes import (
    DEFAULT_TENANT,
    OUTCOME,
    OutcomeRecord,
    RequestRecord,
    asked_in,
    list_prices,
    measured_in,
)
from trimtab.predict.fewshot.request import place_name
from trimtab.store import Event, Store, WantedEvents

DRIFT = "drift"  # the kind of event


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A change: its kind, its subject, a sentence, numbers, and the evidence for it."""

    name: str
    subject: str
    sentence: str
    numbers: Mapping[str, float]
    evidence: tuple[str, ...]


def raise_events(
    store: Store,
    events: Iterable[Event],
    findings: Iterable[DriftFinding],
    now: float,
    tenant: str = DEFAULT_TENANT,
) -> list[DriftFinding]:
    """Write down what is new for a tenant; a finding whose evidence an earlier event has used is not."""
    used: dict[tuple[str, str], set[str]] = {}
    for event in events:
        if event.kind == DRIFT:
            key = (str(event.detail.get("name")), event.subject)
            used.setdefault(key, set()).update(event.detail.get("evidence", ()))
    new = [each for each in findings if used.get((each.name, each.subject), set()).isdisjoint(each.evidence)]
    for each in new:
        detail = {"name": each.name, "sentence": each.sentence, "numbers": dict(each.numbers)}
        store.events.append(DRIFT, each.subject, {**detail, "evidence": list(each.evidence)}, now, tenant)
    return new


LIMIT = 2000.0

_CHANGES = 40  # that are bet on at once, with equal parts of the stake


def rate_bets(seen: Sequence[bool], rate: float) -> list[Array]:
    """Bets that something happens more often than at this rate, one for every higher rate on a grid."""
    higher = rate + (1 - rate) * (np.arange(_CHANGES) + 0.5) / _CHANGES
    return [higher / rate if each else (1 - higher) / (1 - rate) for each in seen]


def rank_bets(rank: int, count: int) -> Array:
    """Bets that ranks are high; without a change every rank from 1 to `count` is as likely as another."""
    powers = np.geomspace(1.1, 30.0, _CHANGES)
    return np.asarray(count * ((rank / count) ** powers - ((rank - 1) / count) ** powers))


def alarms(bets: Sequence[Array]) -> list[slice]:
    """Where the limit was reached, each with the observations that most was won in; then it begins anew."""
    found: list[slice] = []
    held, begun = np.zeros(_CHANGES), 0
    for number, each in enumerate(bets):
        held = (held + 1.0) * each
        if held.mean() >= LIMIT:
            won = np.cumprod(bets[begun : number + 1][::-1], axis=0).mean(axis=1)
            found.append(slice(number - int(won.argmax()), number + 1))
            held, begun = np.zeros(_CHANGES), number + 1
    return found


_TOLERANCE = 1.2  # a bias below this factor is not worth a message
_SLOWER = 1.1  # nor is a load that slows things down by less
_RECENT = 100  # outcomes that are looked at after another
_ALL_PREDICTIONS = "all predictions"


def drift_after(
    store: Store, event: int, since: float, now: float, tenant: str = DEFAULT_TENANT
) -> list[DriftFinding]:
    """New drift that a tenant's newest outcome, written as this event, shows; takes milliseconds."""

    def recent(kind: str) -> tuple[Event, ...]:
        return store.events.page(_RECENT, WantedEvents(kind, tenants=(tenant,)), str(event + 1)).items

    found = outcome_drift(recent(OUTCOME), since)
    return raise_events(store, recent(DRIFT), found, now, tenant)


def outcome_drift(events: Iterable[Event], since: float) -> list[DriftFinding]:
    """All that outcomes of predictions made since then show, oldest first."""
    outcomes = [one for one in measured_in(events) if one.decided >= since]
    return [*coverage_drift(outcomes), *bias_drift(outcomes), *load_drift(outcomes)]


def coverage_drift(outcomes: Sequence[OutcomeRecord]) -> list[DriftFinding]:
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
        found.append(DriftFinding("accuracy", _ALL_PREDICTIONS, sentence, numbers, _keys(first[span])))
    return found


def bias_drift(outcomes: Sequence[OutcomeRecord]) -> list[DriftFinding]:
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
            found.append(DriftFinding("bias", _ALL_PREDICTIONS, sentence, numbers, _keys(first[span])))
    return found


def load_drift(outcomes: Sequence[OutcomeRecord]) -> list[DriftFinding]:
    """Applications that get slower at the same place, by the rank of each outcome among those before it."""
    by_application: dict[str, list[OutcomeRecord]] = {}
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
            found.append(DriftFinding("load", application, sentence, numbers, _keys(late)))
    return found


def _first_of_each(outcomes: Sequence[OutcomeRecord]) -> list[OutcomeRecord]:
    """An application's first outcome; further ones would repeat its error and prove nothing new."""
    first: dict[str, OutcomeRecord] = {}
    for one in outcomes:
        if one.is_prediction:
            first.setdefault(one.application, one)
    return list(first.values())


def _against_earlier(mine: Sequence[OutcomeRecord]) -> tuple[list[OutcomeRecord], list[Array]]:
    """Outcomes that have earlier ones at the same place, and the bets on their rank among them."""
    before: dict[str, list[float]] = {}
    compared, bets = list[OutcomeRecord](), list[Array]()
    for one in mine:
        earlier = before.setdefault(one.place, [])
        if earlier:
            rank = 1 + sum(seconds < one.seconds for seconds in earlier)
            compared.append(one)
            bets.append(rank_bets(rank, len(earlier) + 1))
        earlier.append(one.seconds)
    return compared, bets


def _growth(mine: Sequence[OutcomeRecord], last: OutcomeRecord) -> float:
    """The median of the last quarter over that of the first, of the outcomes at one place up to this one."""
    there = [one.seconds for one in mine if one.place == last.place and one.recorded <= last.recorded]
    quarter = max(1, len(there) // 4)
    return float(np.median(there[-quarter:]) / np.median(there[:quarter]))


def _keys(some: Sequence[OutcomeRecord]) -> tuple[str, ...]:
    return tuple(one.key for one in some)


_UNUSUAL = 0.05  # of the applications learned from are as unlike the others
_CALIBRATED_ON = 200  # of them
_PRICE_CHANGE = 0.05
_HOUR = 3600.0
# Where the prices of the clusters that were learned from are from.
_CLUSTERS, _CLOUD, _REGION = "ec2", "aws", "us-east-1"

# Cloud, region, instance, and whether it is a spot price.
_Offered = tuple[str, str, str, bool]


def all_drift(
    events: Sequence[Event],
    recommended: Sequence[Decision],
    foundation: Foundation,
    since: float,
    offers: OfferTable,
) -> list[DriftFinding]:
    """All drift that the records of predictions since then show."""
    asked = [
        each for each in asked_in(events) if each.asked >= since and each.corpus in foundation.predictors
    ]
    return [
        *outcome_drift(events, since),
        *input_drift(asked, foundation),
        *hardware_drift(asked, foundation),
        *price_drift(asked, recommended, foundation, offers),
    ]


def input_drift(asked: Sequence[RequestRecord], foundation: Foundation) -> list[DriftFinding]:
    """Applications that are unlike those learned from, more often than those are unlike one another."""
    found = []
    for corpus in dict.fromkeys(each.corpus for each in asked):
        mine = {each.application: each for each in reversed(asked) if each.corpus == corpus}
        first = list(mine.values())[::-1]
        usual = usual_unlikeness(corpus, foundation.predictors[corpus], foundation)
        unusual = [each.unlike > usual for each in first]
        for span in alarms(rate_bets(unusual, _UNUSUAL)):
            count, strangers = len(first[span]), sum(unusual[span])
            sentence = (
                f"{strangers} of the last {count} applications asked about are more unlike those in {corpus} "
                f"that were learned from than {1 - _UNUSUAL:.0%} of these are (unlikeness above {usual:.1f})"
            )
            numbers = {"requests": count, "unusual": strangers, "limit": usual}
            evidence = tuple(each.decision for each in first[span])
            found.append(DriftFinding("input", corpus, sentence, numbers, evidence))
    return found


def usual_unlikeness(corpus: str, fitted: FittedBlend, foundation: Foundation) -> float:
    """Unlikeness that few of the applications learned from exceed, each known by one run and its metrics."""
    curves, cases = fitted.curves, replayed(corpus, foundation)
    names = np.array([case.application for case in cases])
    added = np.arange(len(cases), len(curves.matrix.log_seconds))  # by outcomes
    random = np.random.default_rng(0)
    found = []
    for row in random.permutation(len(cases))[:_CALIBRATED_ON]:
        others = np.concatenate([np.flatnonzero(names != names[row]), added])
        matrix = replace(curves.matrix, log_seconds=curves.matrix.log_seconds[others], _ratios={})
        without = replace(curves, matrix=matrix, metrics=curves.metrics[others])
        found.append(without.unlikeness(cases[row], random.choice(len(cases[row]), 1)))
    return float(np.quantile(found, 1 - _UNUSUAL))


def hardware_drift(asked: Sequence[RequestRecord], foundation: Foundation) -> list[DriftFinding]:
    """Places beyond everything that was learned from: more of something than any had, or less."""
    found: dict[str, DriftFinding] = {}
    for each in asked:
        learned = foundation.predictors[each.corpus].curves.matrix.settings
        for key, settings in each.strange.items():
            for name in SCALES:
                column = learned[:, SETTINGS.index(name)]
                value = settings.get(name, math.nan)
                if np.isnan(value) or np.isnan(column).all():
                    continue
                low, high = float(np.nanmin(column)), float(np.nanmax(column))
                if not low * 0.999 <= value <= high * 1.001:
                    sentence = (
                        f"{place_name(key)} in {each.environment} is beyond what was learned "
                        f"from: its {name} is {value:.4g}, those were {low:.4g} to {high:.4g}"
                    )
                    numbers = {"asked": value, "low": low, "high": high}
                    found.setdefault(
                        key, DriftFinding("hardware", each.environment, sentence, numbers, (key,))
                    )
    return list(found.values())


def price_drift(
    asked: Sequence[RequestRecord],
    recommended: Sequence[Decision],
    foundation: Foundation,
    offers: OfferTable,
) -> list[DriftFinding]:
    """Prices that decisions were made with, beside those that the catalog has now, in dollars per hour."""
    found = _list_price_drift(asked)
    for (cloud, region, instance, spot), then in _prices_used(asked, recommended, foundation).items():
        there = offers.where(cloud=cloud, region=region, instance=instance)
        now = float((there.spot_price if spot else there.price)[0]) * _HOUR if len(there) else math.nan
        if abs(now / then - 1) > _PRICE_CHANGE:
            what = f"{instance} spot" if spot else instance
            sentence = (
                f"{what} in {region} costs ${now:.4g} an hour in the catalog, "
                f"and decisions were made with ${then:.4g}"
            )
            evidence = (f"${now:.6g} after ${then:.6g}",)
            numbers = {"then": then, "now": now}
            found.append(DriftFinding("price", f"{cloud} {region} {what}", sentence, numbers, evidence))
    return found


def _list_price_drift(asked: Sequence[RequestRecord]) -> list[DriftFinding]:
    """Prices that came with an earlier Trimtab, beside those that came with this one."""
    found: dict[tuple[str, str], DriftFinding] = {}
    for each in asked:
        for what, now in list_prices(each.environment).items():
            then = each.list_prices.get(what, now)
            if abs(now / then - 1) > _PRICE_CHANGE:
                sentence = (
                    f"a {what} on {each.environment} costs ${now:.4g}, and predictions said ${then:.4g}"
                )
                evidence = (f"{what} ${now:.6g} after ${then:.6g}",)
                numbers = {"then": then, "now": now}
                found[each.environment, what] = DriftFinding(
                    "price", each.environment, sentence, numbers, evidence
                )
    return list(found.values())


def _prices_used(
    asked: Sequence[RequestRecord], recommended: Sequence[Decision], foundation: Foundation
) -> dict[_Offered, float]:
    """Of recommendations the newest of an offer; of predictions for clusters what came with the data."""
    used: dict[_Offered, float] = {}
    for decision in sorted(recommended, key=lambda each: each.created):
        told = decision.action
        nodes, price = told.get("nodes"), told.get("price_per_second")
        if isinstance(nodes, int) and isinstance(price, int | float) and nodes > 0:
            offer = (str(told["cloud"]), str(told["region"]), str(told["instance"]), bool(told["spot"]))
            used[offer] = price / nodes * _HOUR
    for each in asked:
        if each.environment == _CLUSTERS:
            matrix = foundation.predictors[each.corpus].curves.matrix
            for key in each.places.values():
                if key in matrix.column_of:
                    hourly = matrix.settings[matrix.column_of[key], SETTINGS.index("price_per_hour")]
                    used.setdefault((_CLOUD, _REGION, key.partition(" ")[0], False), float(hourly))
    return used
