"""Learning from outcomes: what was known is replayed, and only what does no worse becomes current."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import MissingDependencyError, Outcome, SimulatedClock
from trimtab.predict import Foundation, Versions, plan_update, predict, quantity_at, remember, update_weights
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.datasets import BUNDLED_FUNCTIONS, read_functions
from trimtab.predict.fewshot.foundation import replayed
from trimtab.predict.fewshot.update import compare_weights, refitted
from trimtab.store import Store, open_store

KNOWN = {"configuration": "c4.large nodes=10", "time": "20m"}


@pytest.fixture(scope="module")
def base(shipped: Foundation) -> Foundation:
    """Only the clusters, which are fitted in a moment."""
    return Foundation({"scout": shipped.predictors["scout"]}, {"seed": 0})


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store() as opened:
        yield opened


def measured(store: Store, foundation: Foundation, name: str, **factors: float) -> None:
    """Ask about an application that ran once, and record times that are so many times the predicted ones."""
    answer = predict({"application": name, "environment": "ec2", "observations": [KNOWN]}, "all", foundation)
    decision = answer.decision(SimulatedClock(10.0))
    store.ledger.record(decision)
    remember(store, answer.request, answer.guarded, decision)
    for number, (place, factor) in enumerate(factors.items()):
        where = place.replace("_", ".") + " nodes=10"
        result = {quantity_at(decision, where): answer.at(where).time.value * factor}
        store.ledger.record_outcome(Outcome(decision.id, 20.0 + number, result))


def updated(store: Store, foundation: Foundation, base: Foundation, versions: Versions) -> Any:
    plan = plan_update(store, foundation)
    assert plan.corpora == ("scout",)
    return update_weights(store, plan, versions, clock=SimulatedClock(100.0), base=base)


def test_replayed_cases_are_those_that_were_learned_from(shipped: Foundation, base: Foundation) -> None:
    fitted = base.predictors["scout"]
    again = refitted(fitted, replayed("scout", base)).curves
    np.testing.assert_allclose(again.matrix.log_seconds, fitted.curves.matrix.log_seconds, atol=1e-5)
    np.testing.assert_allclose(again.metrics, fitted.curves.metrics, atol=1e-4)
    np.testing.assert_allclose(again.model.mean, fitted.curves.model.mean, atol=1e-3)
    bundled = read_functions(BUNDLED_FUNCTIONS).completed().cases
    assert [case.label for case in replayed("functions", shipped)] == [case.label for case in bundled]


def test_what_was_learned_is_current_and_moves_the_next_answer(
    store: Store, base: Foundation, tmp_path: Path
) -> None:
    versions = Versions(tmp_path / "models")
    measured(store, base, "slow on r4", r4_large=2.0, r4_xlarge=2.0)
    made = updated(store, base, base, versions)
    assert made.version == versions.current.name == "v1"
    assert versions.since == 100.0
    about, own = made.comparisons
    assert (about.about, own.about) == ("replayed applications", "your outcomes")
    assert own.old == own.new > 0.3  # nobody had seen it who was asked about it
    assert about.new <= about.old + about.allowed
    learned = versions.load("v1")
    description = {"environment": "ec2", "observations": [KNOWN]}
    before, after = (
        predict(description, "r4.large nodes=10", item).lines[1].time for item in (base, learned)
    )
    assert after.value > before.value
    assert plan_update(store, learned).corpora == ()
    assert [event.kind for event in store.events.since(0)][-1] == "model"


def test_functions_are_learned_by_forest_and_curves_alike(
    store: Store,
    foundation: Foundation,
    cases: tuple[Case, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trimtab.predict.fewshot.update.replayed", lambda *_: cases[:9])
    for name, seconds in (("one", 1.0), ("two", 3.0)):
        description = {"application": name, "observations": [{"memory": "512MB", "time": seconds}]}
        answer = predict(description, "1GB,2GB", foundation)
        decision = answer.decision()
        store.ledger.record(decision)
        remember(store, answer.request, answer.guarded, decision)
        for place in ("1024MB", "2048MB"):
            result = {quantity_at(decision, place): seconds}
            store.ledger.record_outcome(Outcome(decision.id, 1.0, result))
    plan = plan_update(store, foundation)
    assert plan.corpora == ("functions",)
    comparisons = compare_weights(plan, "functions", cases[:9], lambda step: None)
    assert [item.applications for item in comparisons] == [len({case.application for case in cases[:9]}), 2]
    assert comparisons[1].new < comparisons[1].old  # each of the two tells something about the other
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingDependencyError, match="scikit-learn"):
        update_weights(store, plan, Versions(tmp_path / "models"))


def test_the_next_version_learns_old_outcomes_too_and_knows_where_it_comes_from(
    store: Store, base: Foundation, tmp_path: Path
) -> None:
    versions = Versions(tmp_path / "models")
    measured(store, base, "first", r4_large=1.1)
    updated(store, base, base, versions)
    first = versions.load("v1")
    measured(store, first, "second", m4_large=0.9)
    plan = plan_update(store, first)
    assert (len(plan.outcomes), len(plan.new)) == (2, 1)
    assert updated(store, first, base, versions).version == "v2"
    second = versions.load("v2")
    rows = [len(item.predictors["scout"].curves.matrix.log_seconds) for item in (base, first, second)]
    assert rows == [18, 19, 20]
    assert versions.before("v2") == "v1"


def test_what_does_worse_is_refused_and_nothing_changes(
    store: Store, base: Foundation, tmp_path: Path
) -> None:
    versions = Versions(tmp_path / "models")
    random = np.random.default_rng(0)
    places = ("r4_large", "m4_large", "c4_2xlarge", "r4_2xlarge", "m4_2xlarge", "c4_xlarge")
    for number in range(12):
        chaos = {place: float(random.choice([0.05, 20.0])) for place in places}
        measured(store, base, f"chaos {number}", **chaos)
    made = updated(store, base, base, versions)
    assert made.version is None
    assert made.comparisons[0].worse
    assert versions.names == ("shipped",)
    assert versions.current.name == "shipped"
    (event,) = [event for event in store.events.since(0) if event.kind == "model"]
    assert event.detail["refused"] is True
