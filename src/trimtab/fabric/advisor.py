"""Best checkpoint interval, and the monthly value of surviving failures at the edge (seed 002, 3.2.1).

Without the fabric every interruption restarts a job from its last checkpoint (`advice` has the formulas).
With it, a share of failures of cables, ports, cards and top-of-rack switches costs only a stall, so that
interruptions are rarer and saving less often is best.

Rates come from counts, so their ranges are those of a Poisson process (Jeffreys' prior); every other input
has its own range, and thousands of draws from all of them give the ranges of the answer.
"""

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trimtab.core import (
    HOUR,
    Answer,
    Clock,
    Contribution,
    Decision,
    Estimate,
    NotFoundError,
    RealClock,
    Scalar,
    daly_interval,
    format_duration,
    young_interval,
)
from trimtab.fabric.advice import (
    ASSUMED,
    MONTH,
    Advice,
    Assumption,
    Costs,
    Interval,
    Losses,
    Question,
    Sensitivity,
    best_interval,
    time_split,
    useful_share,
)

if TYPE_CHECKING:
    import numpy as np


COVERAGE = 0.9
_DRAWS = 4000
_SEED = 20


def advise(question: Question) -> Advice:
    """The best interval, and a month's losses with and without the fabric; deterministic."""
    import numpy as np

    chosen = _Case.at(question)
    drawn = _Case.drawn(question, np.random.default_rng(_SEED))
    now, ranges = chosen.figures(question), drawn.figures(question)

    def estimate(name: str, unit: str) -> Estimate:
        return _estimate(float(now[name]), ranges[name], unit)

    before, after = (_losses(question, chosen, estimate, when) for when in ("before", "after"))
    best = before.interval.best.value
    months = np.random.default_rng(_SEED + 1).poisson
    return Advice(
        question,
        _estimate(float(chosen.rate) * MONTH, months(drawn.rate * MONTH), "interruptions"),
        _estimate(float(chosen.avoided) * MONTH, months(drawn.avoided * MONTH), "interruptions"),
        before,
        after,
        estimate("saved_hours", "h"),
        estimate("saved_dollars", "$"),
        estimate("break_even", ""),
        _extra(question, chosen, best, before.interval.used),
        _extra(question, chosen, best, before.interval.young),
        _extra(question, chosen, best, best / 2.0),
        _extra(question, chosen, best, best * 2.0),
        _sensitivities(question),
    )


def catalog_price(accelerator: str) -> Assumption:
    """Dollars per device-second on demand: the median of all offers with it, and their range."""
    import numpy as np

    from trimtab.catalog import load_offers

    offers = load_offers().where(accelerator=accelerator, min_accelerators=1)
    if not len(offers):
        raise NotFoundError(f"the catalog has no offer with {accelerator}; give a device's price per hour")
    prices = np.asarray(offers.price) / np.asarray(offers.accelerators)
    low, value, high = np.quantile(prices, [0.05, 0.5, 0.95])
    reason = f"{len(offers)} offers of {accelerator} on demand in the catalog"
    return Assumption(float(value), float(low), float(high), reason)


@dataclass(frozen=True, slots=True)
class _Case:
    """Rates of interruptions (per second) and costs of one case, or arrays of many drawn cases."""

    edge_rate: Any
    other_rate: Any
    price: Any
    saving: Any
    noticing: Any
    restarting: Any
    stall: Any
    survived: Any
    slowdown: Any

    @classmethod
    def at(cls, question: Question) -> "_Case":
        """Every assumption at its value."""
        failures = question.failures
        edge = failures.at_the_edge / failures.exposure * question.devices
        return cls(edge, question.rate - edge, **{name: getattr(question, name).value for name in ASSUMED})

    @classmethod
    def drawn(cls, question: Question, random: "np.random.Generator") -> "_Case":
        """Draws from every range. The mean of a Poisson count k is distributed as Gamma(k + 1/2)."""
        failures = question.failures
        rates = [
            random.gamma(count + 0.5, 1.0, _DRAWS) / failures.exposure * question.devices
            for count in (failures.at_the_edge, failures.interruptions - failures.at_the_edge)
        ]
        return cls(*rates, **{name: _draw(getattr(question, name), random) for name in ASSUMED})

    @property
    def rate(self) -> Any:
        """All interruptions per second, without the fabric."""
        return self.edge_rate + self.other_rate

    @property
    def avoided(self) -> Any:
        """Interruptions per second that the fabric turns into stalls."""
        return self.edge_rate * self.survived

    @property
    def costs(self) -> Costs:
        return Costs(self.saving, self.noticing, self.restarting)

    def figures(self, question: Question) -> dict[str, Any]:
        """A month of the question's job in this case, as numbers or as arrays of draws."""
        rates = (self.rate, self.rate - self.avoided)
        best = [best_interval(self.saving, rate) for rate in rates]
        shares = [
            useful_share(question.interval or interval, rate, self.costs)
            for interval, rate in zip(best, rates, strict=True)
        ]
        shares[1] = shares[1] / (1.0 + self.avoided * self.stall)
        slowed = shares[1] * (1.0 - self.slowdown)
        hours = MONTH / HOUR
        dollars = MONTH * question.devices * self.price
        lost = (1.0 - shares[0], 1.0 - slowed)
        return {
            "between_before": 1.0 / rates[0],
            "between_after": 1.0 / rates[1],
            "interval_before": best[0],
            "interval_after": best[1],
            "hours_before": hours * lost[0],
            "hours_after": hours * lost[1],
            "dollars_before": dollars * lost[0],
            "dollars_after": dollars * lost[1],
            "saved_hours": hours * (lost[0] - lost[1]),
            "saved_dollars": dollars * (lost[0] - lost[1]),
            "break_even": 1.0 - shares[0] / shares[1],
        }


def _losses(question: Question, chosen: _Case, estimate: Any, when: str) -> Losses:
    rate = float(chosen.rate if when == "before" else chosen.rate - chosen.avoided)
    best = estimate(f"interval_{when}", "s")
    used = question.interval or best.value
    saving = float(chosen.saving)
    return Losses(
        estimate(f"between_{when}", "s"),
        Interval(used, best, float(young_interval(saving, rate)), float(daly_interval(saving, rate))),
        estimate(f"hours_{when}", "h"),
        estimate(f"dollars_{when}", "$"),
        time_split(used, rate, chosen.costs),
    )


def _extra(question: Question, chosen: _Case, best: float, other: float) -> float:
    """Dollars a month that another interval costs more than the best, without the fabric."""
    shares = useful_share([best, other], chosen.rate, chosen.costs)
    return float((shares[0] - shares[1]) * MONTH * question.devices * chosen.price)


def _sensitivities(question: Question) -> tuple[Sensitivity, ...]:
    """One assumption at a time at the ends of its range, the largest effect first."""
    from scipy.stats import gamma

    sensitivities = list[Sensitivity]()
    for name in ASSUMED:
        assumption: Assumption = getattr(question, name)
        if assumption.low < assumption.high:
            ends = [_saved(question, **{name: end}) for end in (assumption.low, assumption.high)]
            sensitivities.append(Sensitivity(name, *ends))
    # Means of a Poisson process that explain the count of failures at the edge.
    means = gamma.ppf([(1.0 - COVERAGE) / 2.0, (1.0 + COVERAGE) / 2.0], question.failures.at_the_edge + 0.5)
    rates = [float(mean) / question.failures.exposure * question.devices for mean in means]
    ends = [_saved(question, edge_rate=rate) for rate in rates]
    sensitivities.append(Sensitivity("failures at the edge", *ends))
    return tuple(sorted(sensitivities, key=lambda effect: -abs(effect.at_high - effect.at_low)))


def _saved(question: Question, **changed: float) -> float:
    return float(replace(_Case.at(question), **changed).figures(question)["saved_dollars"])


def _draw(assumption: Assumption, random: "np.random.Generator") -> Any:
    import numpy as np

    low, value, high = assumption.low, assumption.value, assumption.high
    if low == high:
        return np.full(_DRAWS, value)
    if low > 0.0:
        return np.exp(random.triangular(np.log(low), np.log(value), np.log(high), _DRAWS))
    return random.triangular(low, value, high, _DRAWS)


def _estimate(value: float, draws: Any, unit: str) -> Estimate:
    import numpy as np

    low, high = np.quantile(draws, [(1.0 - COVERAGE) / 2.0, (1.0 + COVERAGE) / 2.0])
    return Estimate(value, min(value, float(low)), max(value, float(high)), COVERAGE, unit)


RULE = "no fabric, Young's interval"
MODEL = "renewal"


def advice_decision(advice: Advice, clock: Clock | None = None) -> Decision:
    """The decision for the ledger; its estimates are a month's losses: "time" in seconds, "cost" in dollars.

    Without the fabric where its slowdown costs more than it saves. Contributions are parts of the lost time.
    """
    devices = advice.question.devices
    answers = [
        Answer(
            MODEL,
            _action(devices, fabric, losses.interval.used),
            {"time": _shifted(losses.hours, 0.0, HOUR, "s"), "cost": losses.dollars},
        )
        for fabric, losses in ((True, advice.with_fabric), (False, advice.without))
    ]
    pays = advice.saved_dollars.value > 0.0
    chosen, other = answers if pays else answers[::-1]
    split = (advice.with_fabric if pays else advice.without).split
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=(clock or RealClock()).now(),
        kind="fabric",
        subject=f"a job on {devices} devices",
        action=chosen.action,
        estimates=chosen.estimates,
        chosen_by=MODEL,
        rule=_rule(advice),
        model=chosen,
        alternatives=(other,),
        reason=_reason(advice, pays),
        contributions=tuple(
            Contribution(name, share * MONTH)
            for name, share in (
                ("saving checkpoints", split.saving),
                ("noticing", split.noticing),
                ("restarting", split.restarting),
                ("work done twice", split.redone),
            )
        ),
    )


def _rule(advice: Advice) -> Answer:
    """Young's interval and its losses: those of the one in use, and the extra cost of Young's."""
    losses, question = advice.without, advice.question
    more = advice.young_costs - advice.used_costs
    hours = more / (question.price.value * question.devices * HOUR) if question.price.value else 0.0
    estimates = {
        "time": _shifted(losses.hours, hours, HOUR, "s"),
        "cost": _shifted(losses.dollars, more, 1.0, "$"),
    }
    return Answer(RULE, _action(question.devices, False, losses.interval.young), estimates)


def _action(devices: int, fabric: bool, interval: float) -> dict[str, Scalar]:
    return {"devices": devices, "fabric": fabric, "seconds_between_checkpoints": round(interval, 1)}


def _shifted(estimate: Estimate, by: float, scale: float, unit: str) -> Estimate:
    value, low, high = ((end + by) * scale for end in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, low, high, estimate.coverage, unit)


def _reason(advice: Advice, pays: bool) -> str:
    saved, even = advice.saved_dollars, advice.break_even
    interval = advice.with_fabric.interval if pays else advice.without.interval
    return (
        f"of {advice.interruptions.value:.3g} interruptions a month the fabric survives "
        f"{advice.survived.value:.3g}, which saves ${saved.value:,.0f} (${saved.low:,.0f} to "
        f"${saved.high:,.0f}); it is worth it while steps are slower by less than {100 * even.value:.2g} %; "
        f"{format_duration(interval.used)} between checkpoints, by Young's rule "
        f"{format_duration(interval.young)}"
    )
