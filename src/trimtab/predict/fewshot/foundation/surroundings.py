"""Whether what is asked about still is what was learned from: the applications, the places, the prices."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trimtab.catalog import OfferTable
from trimtab.core import Decision
from trimtab.predict.fewshot import SCALES, SETTINGS, FittedOurs
from trimtab.predict.fewshot.foundation.bets import alarms, rate_bets
from trimtab.predict.fewshot.foundation.drift import outcome_drift
from trimtab.predict.fewshot.foundation.examples import Asked, asked_in, list_prices
from trimtab.predict.fewshot.foundation.finding import Finding
from trimtab.predict.fewshot.foundation.model import Foundation
from trimtab.predict.fewshot.foundation.places import called
from trimtab.predict.fewshot.foundation.replay import replayed
from trimtab.store import Event

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
) -> list[Finding]:
    """Everything that can be told from what is kept of the predictions since then."""
    asked = [
        each for each in asked_in(events) if each.asked >= since and each.corpus in foundation.predictors
    ]
    return [
        *outcome_drift(events, since),
        *input_drift(asked, foundation),
        *hardware_drift(asked, foundation),
        *price_drift(asked, recommended, foundation, offers),
    ]


def input_drift(asked: Sequence[Asked], foundation: Foundation) -> list[Finding]:
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
            found.append(Finding("input", corpus, sentence, numbers, evidence))
    return found


def usual_unlikeness(corpus: str, fitted: FittedOurs, foundation: Foundation) -> float:
    """What few of the applications learned from exceed, seen by one run with all that it showed."""
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


def hardware_drift(asked: Sequence[Asked], foundation: Foundation) -> list[Finding]:
    """Places beyond everything that was learned from: more of something than any had, or less."""
    found: dict[str, Finding] = {}
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
                        f"{called(key)} in {each.environment} is beyond what was learned "
                        f"from: its {name} is {value:.4g}, those were {low:.4g} to {high:.4g}"
                    )
                    numbers = {"asked": value, "low": low, "high": high}
                    found.setdefault(key, Finding("hardware", each.environment, sentence, numbers, (key,)))
    return list(found.values())


def price_drift(
    asked: Sequence[Asked], recommended: Sequence[Decision], foundation: Foundation, offers: OfferTable
) -> list[Finding]:
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
            found.append(Finding("price", f"{cloud} {region} {what}", sentence, numbers, evidence))
    return found


def _list_price_drift(asked: Sequence[Asked]) -> list[Finding]:
    """Prices that came with an earlier Trimtab, beside those that came with this one."""
    found: dict[tuple[str, str], Finding] = {}
    for each in asked:
        for what, now in list_prices(each.environment).items():
            then = each.list_prices.get(what, now)
            if abs(now / then - 1) > _PRICE_CHANGE:
                sentence = (
                    f"a {what} on {each.environment} costs ${now:.4g}, and predictions said ${then:.4g}"
                )
                evidence = (f"{what} ${now:.6g} after ${then:.6g}",)
                numbers = {"then": then, "now": now}
                found[each.environment, what] = Finding(
                    "price", each.environment, sentence, numbers, evidence
                )
    return list(found.values())


def _prices_used(
    asked: Sequence[Asked], recommended: Sequence[Decision], foundation: Foundation
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
