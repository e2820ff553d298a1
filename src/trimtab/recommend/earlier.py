"""What became of earlier decisions about a workload, as the guard wants to know it."""

from collections.abc import Callable, Sequence

from trimtab.core import Decision, Outcome, Profile
from trimtab.predict import EarlierRun
from trimtab.recommend.explain import STARTING
from trimtab.store import Store

LOOK_BACK = 100
"""How many decisions back to look for outcomes."""

# Another model under the same name is another workload: its parameters may differ by this share.
_SAME_MODEL = 0.1
# Machines may start this much faster or slower than assumed, as a share of the assumption.
_START_UNSURE = 1.0
# Even a job that ended sooner than machines start ran for this share of its time.
_LEAST_RUNNING = 0.01


def earlier_runs(
    store: Store, profile: Profile, tenants: Sequence[str] | None = None
) -> tuple[EarlierRun, ...]:
    """Outcomes of earlier decisions about the profiled workload that `tenants` may see, oldest first."""
    made = store.ledger.list(LOOK_BACK, "recommend", profile.workload.name, tenants)
    return runs_after(made, lambda id: store.ledger.outcomes(id, tenants), profile)


def runs_after(
    newest_first: Sequence[Decision], outcomes: Callable[[str], Sequence[Outcome]], profile: Profile
) -> tuple[EarlierRun, ...]:
    """The same of decisions from anywhere; `outcomes` gives those of a decision's id."""
    found = []
    for made in reversed(newest_first):
        if _is_of(made, profile):
            runs = (_run(made, outcome, profile) for outcome in outcomes(made.id))
            found += [run for run in runs if run]
    return tuple(found)


def _is_of(made: Decision, profile: Profile) -> bool:
    """Whether the decision was about this model, as far as it says."""
    then, now = made.action.get("parameters"), profile.model.parameters if profile.model else None
    if not isinstance(then, int) or not now:
        return True
    return abs(then / now - 1) <= _SAME_MODEL


def _run(made: Decision, outcome: Outcome, profile: Profile) -> EarlierRun | None:
    """The outcome relative to what the rule said; None where it says nothing about time."""
    action, estimate = made.action, made.rule.estimates.get("time")
    seconds = _seconds(made, outcome)
    batch, nodes = action.get("batch_size"), action.get("nodes")
    if estimate is None or seconds is None or not isinstance(batch, int) or not isinstance(nodes, int):
        return None
    start = sum(c.value for c in made.contributions if c.name == STARTING)
    running, expected = max(seconds - start, _LEAST_RUNNING * seconds), estimate.value - start
    if not expected > 0:
        return None
    accelerator, count = action.get("accelerator"), action.get("accelerators")
    precision = action.get("precision")
    return EarlierRun(
        accelerator=str(accelerator) if accelerator else None,
        devices=float(nodes * (count if isinstance(count, int) and count else 1)),
        batch=float(batch),
        precision=str(precision or (profile.model.precision if profile.model else "fp32")),
        ratio=running / expected,
        noise=_START_UNSURE * start / max(running, expected),
    )


def _seconds(made: Decision, outcome: Outcome) -> float | None:
    """How long it took, or how long what it cost pays for."""
    price = made.action.get("price_per_second")
    time, cost = outcome.measured.get("time"), outcome.measured.get("cost")
    if time is None and cost is not None and isinstance(price, float) and price > 0:
        time = cost / price
    return time if time and time > 0 else None
