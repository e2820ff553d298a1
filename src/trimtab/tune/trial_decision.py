"""Trials and what they lead to, as decisions that the ledger can keep and outcomes can judge."""

import uuid
from collections.abc import Sequence

from trimtab.core import Answer, Contribution, Decision, Estimate, Scalar
from trimtab.predict import MODEL, TRIAL
from trimtab.tune.job_space import Setup
from trimtab.tune.opinion import Opinion
from trimtab.tune.prior import COVERAGE, Prior

RULE = "rule:training-step"
_ALTERNATIVES = 5


def trial_decision(
    job: str, prior: Prior, row: int, setup: Setup, opinions: Sequence[Opinion], reason: str, now: float
) -> Decision:
    """To try a configuration; its outcome is what the whole job would take there by the trial."""
    return _decision("trial", job, prior, row, setup, opinions, reason, now)


def tuned_decision(job: str, prior: Prior, opinions: Sequence[Opinion], reason: str, now: float) -> Decision:
    """To rent the configuration that tuning put first; its outcome is what somebody's whole run took."""
    best = opinions[0]
    return _decision("tune", job, prior, best.row, best.setup, opinions, reason, now)


def ranked_decision(job: str, prior: Prior, opinions: Sequence[Opinion], reason: str, now: float) -> Decision:
    """To rent the first of a ranking, of which nothing was tried for it."""
    best = opinions[0]
    return _decision("recommend", job, prior, best.row, best.setup, opinions, reason, now)


def _decision(
    kind: str,
    job: str,
    prior: Prior,
    row: int,
    setup: Setup,
    opinions: Sequence[Opinion],
    reason: str,
    now: float,
) -> Decision:
    chosen = next((each for each in opinions if each.row == row), None)
    action, model = _action(setup), f"model:tune-{prior.method}"
    estimates = _estimates(chosen) if chosen else {}
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=now,
        kind=kind,
        subject=job,
        action=action,
        estimates=estimates,
        chosen_by=RULE if chosen and chosen.evidence == "rule" else model,
        rule=Answer(RULE, action, by_rule(prior, row, setup)),
        model=Answer(model, action, estimates),
        alternatives=tuple(
            Answer(model, _action(each.setup), _estimates(each))
            for each in [each for each in opinions if each.row != row][:_ALTERNATIVES]
        ),
        reason=reason,
        contributions=_contributions(prior, chosen) if chosen else (),
    )


def _action(setup: Setup) -> dict[str, Scalar]:
    return {
        "shape": setup.shape.name,
        "workers": setup.workers,
        "batch_size": setup.batch,
        "price_per_second": setup.price_per_second,
    }


def _contributions(prior: Prior, opinion: Opinion) -> tuple[Contribution, ...]:
    """Seconds of the whole job by what said them; they add up to its time."""
    said = float(prior.rule_seconds[opinion.row])
    learned = {MODEL: "learned from other jobs and trials", TRIAL: "shown by a trial"}
    moved = learned.get(opinion.evidence, "moved by trials")
    more = opinion.time.value - said
    return (Contribution("the rule from the local run", said), *([Contribution(moved, more)] if more else []))


def _estimates(opinion: Opinion) -> dict[str, Estimate]:
    return {"time": opinion.time, "cost": opinion.cost}


def by_rule(prior: Prior, row: int, setup: Setup) -> dict[str, Estimate]:
    """What the rule alone says."""
    low, value, high = prior.rule_range(row)
    time = Estimate(value, low, high, COVERAGE, "s")
    return {"time": time, "cost": time.scaled(setup.price_per_second, "$")}
