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
from trimtab.core import DEFAULT_TENANT, HOUR, Decision, format_duration
from trimtab.predict.fewshot.blend import FittedBlend
from trimtab.predict.fewshot.case import SCALES, SETTINGS, Array
from trimtab.predict.fewshot.foundation import Foundation, replayed
from trimtab.predict.fewshot.outcomes import (
    OUTCOME,
    OutcomeRecord,
    RequestRecord,
    list_prices,
    measured_in,
    requests_in,
)
from trimtab.predict.fewshot.request import place_name
from trimtab.store import Event, EventFilter, Store

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
    """Record findings of a tenant as events, except those whose evidence an earlier event has used."""
    used: dict[tuple[str, str], set[str]] = {}
    for event in events:
        if event.kind == DRIFT:
            key = (str(event.detail.get("name")), event.subject)
            used.setdefault(key, set()).update(event.detail.get("evidence", ()))
    new = [f for f in findings if used.get((f.name, f.subject), set()).isdisjoint(f.evidence)]
    for finding in new:
        detail = {"name": finding.name, "sentence": finding.sentence, "numbers": dict(finding.numbers)}
        evidence = list(finding.evidence)
        store.events.append(DRIFT, finding.subject, {**detail, "evidence": evidence}, now, tenant)
    return new


LIMIT = 2000.0

_CHANGES = 40  # that are bet on at once, with equal parts of the stake


def rate_bets(happened: Sequence[bool], rate: float) -> list[Array]:
    """Bets that something happens more often than at this rate, one for every higher rate on a grid."""
    higher = rate + (1 - rate) * (np.arange(_CHANGES) + 0.5) / _CHANGES
    return [higher / rate if flag else (1 - higher) / (1 - rate) for flag in happened]


def rank_bets(rank: int, count: int) -> Array:
    """Bets that ranks are high; without a change every rank from 1 to `count` is equally likely."""
    powers = np.geomspace(1.1, 30.0, _CHANGES)
    return np.asarray(count * ((rank / count) ** powers - ((rank - 1) / count) ** powers))


def alarms(bets: Sequence[Array]) -> list[slice]:
    """Spans of observations that reached the limit, each where most was won; after one it starts anew."""
    spans: list[slice] = []
    stake, start = np.zeros(_CHANGES), 0
    for number, bet in enumerate(bets):
        stake = (stake + 1.0) * bet
        if stake.mean() >= LIMIT:
            won = np.cumprod(bets[start : number + 1][::-1], axis=0).mean(axis=1)
            spans.append(slice(number - int(won.argmax()), number + 1))
            stake, start = np.zeros(_CHANGES), number + 1
    return spans


_TOLERANCE = 1.2  # a bias below this factor is not worth a message
_SLOWER = 1.1  # nor is a load that slows things down by less
_RECENT = 100  # outcomes that are looked at after another
_ALL_PREDICTIONS = "all predictions"


def drift_after(
    store: Store, event: int, since: float, now: float, tenant: str = DEFAULT_TENANT
) -> list[DriftFinding]:
    """New drift that a tenant's newest outcome, recorded as this event, shows; takes milliseconds."""
    outcomes, drifts = (
        store.events.page(_RECENT, EventFilter(kind, tenants=(tenant,)), str(event + 1)).items
        for kind in (OUTCOME, DRIFT)
    )
    return raise_events(store, drifts, outcome_drift(outcomes, since), now, tenant)


def outcome_drift(events: Iterable[Event], since: float) -> list[DriftFinding]:
    """Drift in outcomes of predictions made since then, oldest first."""
    outcomes = [outcome for outcome in measured_in(events) if outcome.decided >= since]
    return [*coverage_drift(outcomes), *bias_drift(outcomes), *load_drift(outcomes)]


def coverage_drift(outcomes: Sequence[OutcomeRecord]) -> list[DriftFinding]:
    """Intervals that hold less often than they state."""
    first = _first_of_each(outcomes)
    coverage = min((outcome.predicted.coverage for outcome in first), default=1.0)
    missed = [not outcome.predicted.contains(outcome.seconds) for outcome in first]
    findings = []
    for span in alarms(rate_bets(missed, max(1 - coverage, 1e-3))):
        count = len(first[span])
        held = count - sum(missed[span])
        sentence = (
            f"of the last {count} applications' outcomes {held} lay within the stated {coverage:.0%} ranges, "
            f"where {coverage * count:.0f} should"
        )
        numbers = {"outcomes": count, "held": held, "coverage": coverage}
        findings.append(DriftFinding("accuracy", _ALL_PREDICTIONS, sentence, numbers, _keys(first[span])))
    return findings


def bias_drift(outcomes: Sequence[OutcomeRecord]) -> list[DriftFinding]:
    """Times that lie clearly to one side of the middle of their intervals.

    A sign test: more than half of them beyond the tolerance. Answers themselves lean low on purpose, so times
    are compared with the middle of the interval.
    """
    first = _first_of_each(outcomes)
    off = [one.seconds / math.sqrt(one.predicted.low * one.predicted.high) for one in first]
    findings = []
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
            findings.append(DriftFinding("bias", _ALL_PREDICTIONS, sentence, numbers, _keys(first[span])))
    return findings


def load_drift(outcomes: Sequence[OutcomeRecord]) -> list[DriftFinding]:
    """Applications that get slower at the same place, by the rank of each outcome among those before it."""
    by_application: dict[str, list[OutcomeRecord]] = {}
    for outcome in outcomes:
        by_application.setdefault(outcome.application, []).append(outcome)
    findings = []
    for application, own in by_application.items():
        before: dict[str, list[float]] = {}
        compared, bets = list[OutcomeRecord](), list[Array]()
        for outcome in own:
            earlier = before.setdefault(outcome.place, [])
            if earlier:
                rank = 1 + sum(seconds < outcome.seconds for seconds in earlier)
                compared.append(outcome)
                bets.append(rank_bets(rank, len(earlier) + 1))
            earlier.append(outcome.seconds)
        for span in alarms(bets):
            late = compared[span]
            last = late[-1]
            # The median of the last quarter over that of the first, of the outcomes at one place until then.
            there = [o.seconds for o in own if o.place == last.place and o.recorded <= last.recorded]
            quarter = max(1, len(there) // 4)
            ratio = float(np.median(there[-quarter:]) / np.median(there[:quarter]))
            if ratio < _SLOWER:
                continue
            sentence = (
                f"{application} takes {ratio:.2f} times as long as before at the same place, over its last "
                f"{len(late)} outcomes; now {format_duration(last.seconds)} at {last.place}"
            )
            numbers = {"outcomes": len(late), "ratio": ratio}
            findings.append(DriftFinding("load", application, sentence, numbers, _keys(late)))
    return findings


def _first_of_each(outcomes: Sequence[OutcomeRecord]) -> list[OutcomeRecord]:
    """An application's first outcome; further ones would repeat its error and prove nothing new."""
    first: dict[str, OutcomeRecord] = {}
    for outcome in outcomes:
        if outcome.is_prediction:
            first.setdefault(outcome.application, outcome)
    return list(first.values())


def _keys(outcomes: Sequence[OutcomeRecord]) -> tuple[str, ...]:
    return tuple(outcome.key for outcome in outcomes)


_UNUSUAL = 0.05  # of the applications learned from are as unlike the others
_CALIBRATED_ON = 200  # of them
_PRICE_CHANGE = 0.05
# Environment, cloud and region of the clusters that were learned from.
_CLUSTERS, _CLOUD, _REGION = "ec2", "aws", "us-east-1"


def all_drift(
    events: Sequence[Event],
    recommended: Sequence[Decision],
    foundation: Foundation,
    since: float,
    offers: OfferTable,
) -> list[DriftFinding]:
    """All drift that the records of predictions since then show."""
    requests = [r for r in requests_in(events) if r.asked >= since and r.corpus in foundation.predictors]
    return [
        *outcome_drift(events, since),
        *input_drift(requests, foundation),
        *hardware_drift(requests, foundation),
        *price_drift(requests, recommended, foundation, offers),
    ]


def input_drift(requests: Sequence[RequestRecord], foundation: Foundation) -> list[DriftFinding]:
    """Applications that are unlike those learned from, more often than those are unlike one another."""
    findings = []
    for corpus in dict.fromkeys(request.corpus for request in requests):
        by_application: dict[str, RequestRecord] = {}
        for request in requests:
            if request.corpus == corpus:
                by_application.setdefault(request.application, request)
        first = list(by_application.values())
        usual = usual_unlikeness(corpus, foundation.predictors[corpus], foundation)
        unusual = [request.unlike > usual for request in first]
        for span in alarms(rate_bets(unusual, _UNUSUAL)):
            count, strangers = len(first[span]), sum(unusual[span])
            sentence = (
                f"{strangers} of the last {count} applications requested are more unlike those in {corpus} "
                f"that were learned from than {1 - _UNUSUAL:.0%} of these are (unlikeness above {usual:.1f})"
            )
            numbers = {"requests": count, "unusual": strangers, "limit": usual}
            evidence = tuple(request.decision for request in first[span])
            findings.append(DriftFinding("input", corpus, sentence, numbers, evidence))
    return findings


def usual_unlikeness(corpus: str, fitted: FittedBlend, foundation: Foundation) -> float:
    """Unlikeness that few of the applications learned from exceed, each known by one run and its metrics."""
    curves, cases = fitted.curves, replayed(corpus, foundation)
    names = np.array([case.application for case in cases])
    added = np.arange(len(cases), len(curves.matrix.log_seconds))  # by outcomes
    random = np.random.default_rng(0)
    unlikeness = []
    for row in random.permutation(len(cases))[:_CALIBRATED_ON]:
        others = np.concatenate([np.flatnonzero(names != names[row]), added])
        matrix = replace(curves.matrix, log_seconds=curves.matrix.log_seconds[others], _ratios={})
        without = replace(curves, matrix=matrix, metrics=curves.metrics[others])
        unlikeness.append(without.unlikeness(cases[row], random.choice(len(cases[row]), 1)))
    return float(np.quantile(unlikeness, 1 - _UNUSUAL))


def hardware_drift(requests: Sequence[RequestRecord], foundation: Foundation) -> list[DriftFinding]:
    """Configurations with more or less of a setting than any that was learned from."""
    findings: dict[str, DriftFinding] = {}
    for request in requests:
        learned = foundation.predictors[request.corpus].curves.matrix.settings
        for key, settings in request.strange.items():
            for name in SCALES:
                column = learned[:, SETTINGS.index(name)]
                value = settings.get(name, math.nan)
                if np.isnan(value) or np.isnan(column).all():
                    continue
                low, high = float(np.nanmin(column)), float(np.nanmax(column))
                if key in findings or low * 0.999 <= value <= high * 1.001:
                    continue
                sentence = (
                    f"{place_name(key)} in {request.environment} is beyond the configurations learned from: "
                    f"its {name} is {value:.4g}, theirs {low:.4g} to {high:.4g}"
                )
                numbers = {"asked": value, "low": low, "high": high}
                findings[key] = DriftFinding("hardware", request.environment, sentence, numbers, (key,))
    return list(findings.values())


def price_drift(
    requests: Sequence[RequestRecord],
    recommended: Sequence[Decision],
    foundation: Foundation,
    offers: OfferTable,
) -> list[DriftFinding]:
    """Prices of earlier decisions that differ from those of the catalog and of this version now."""
    findings: dict[tuple[str, str], DriftFinding] = {}

    def compare(subject: str, item: str, then: float, now: float, sentence: str) -> None:
        if abs(now / then - 1) > _PRICE_CHANGE:
            evidence = (f"{item} ${now:.6g} after ${then:.6g}".strip(),)
            numbers = {"then": then, "now": now}
            findings[subject, item] = DriftFinding("price", subject, sentence, numbers, evidence)

    for request in requests:  # prices that come with Trimtab itself
        for item, now in list_prices(request.environment).items():
            then = request.list_prices.get(item, now)
            sentence = f"a {item} on {request.environment} costs ${now:.4g}, and predictions used ${then:.4g}"
            compare(request.environment, item, then, now, sentence)
    for (cloud, region, instance, spot), then in _prices_used(requests, recommended, foundation).items():
        offer = offers.where(cloud=cloud, region=region, instance=instance)
        now = float((offer.spot_price if spot else offer.price)[0]) * HOUR if len(offer) else math.nan
        name = f"{instance} spot" if spot else instance
        sentence = (
            f"{name} in {region} costs ${now:.4g} an hour in the catalog, and decisions used ${then:.4g}"
        )
        compare(f"{cloud} {region} {name}", "", then, now, sentence)
    return list(findings.values())


def _prices_used(
    requests: Sequence[RequestRecord], recommended: Sequence[Decision], foundation: Foundation
) -> dict[tuple[str, str, str, bool], float]:
    """Dollars per hour by cloud, region, instance and spot: the newest recommended, and those of the data."""
    used: dict[tuple[str, str, str, bool], float] = {}
    for decision in sorted(recommended, key=lambda decision: decision.created):
        action = decision.action
        nodes, price = action.get("nodes"), action.get("price_per_second")
        if isinstance(nodes, int) and isinstance(price, int | float) and nodes > 0:
            cloud, region, instance = (str(action[name]) for name in ("cloud", "region", "instance"))
            used[cloud, region, instance, bool(action["spot"])] = price / nodes * HOUR
    for request in requests:
        if request.environment == _CLUSTERS:
            matrix = foundation.predictors[request.corpus].curves.matrix
            for key in request.places.values():
                if key in matrix.column_of:
                    hourly = matrix.settings[matrix.column_of[key], SETTINGS.index("price_per_hour")]
                    used.setdefault((_CLOUD, _REGION, key.partition(" ")[0], False), float(hourly))
    return used
