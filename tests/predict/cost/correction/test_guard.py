"""Rule and model side by side: who answers, and why."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trimtab.core import Model, Profile
from trimtab.predict import AnalyticEstimator, EarlierRun, GuardedEstimator, Placements

MakeProfile = Callable[..., Profile]
Place = Callable[..., Placements]


def earlier(ratio: float, **changes: Any) -> EarlierRun:
    facts: dict[str, Any] = {"accelerator": "A100", "devices": 1.0, "batch": 16.0, "precision": "fp32"}
    return EarlierRun(**{**facts, **changes}, ratio=ratio, noise=0.0)


def test_without_outcomes_times_are_the_rules(make_profile: MakeProfile, place: Place) -> None:
    where = place({"device": "A100"}, {"device": "H200", "batch": 64}, {"device": None})
    found = GuardedEstimator(make_profile()).estimate(where)
    rule = AnalyticEstimator(make_profile()).estimate(where)
    assert found.chosen.total.tolist() == rule.total.tolist() == found.model.total.tolist()
    assert found.chosen.low.tolist() == rule.low.tolist()
    assert not found.time.asked.any()
    assert found.time.words(0) == "the rule answers: no earlier outcome of this workload is known"


def test_a_hosts_memory_stays_with_the_rule(make_profile: MakeProfile, place: Place) -> None:
    found = GuardedEstimator(make_profile()).estimate(place({"device": None}, {"device": "A100"}))
    assert found.memory.asked.tolist() == [False, True]
    assert found.chosen.memory[0] == found.rule.memory[0]
    assert "local run" in found.memory.words(0)


def test_a_model_unlike_all_measured_keeps_the_rules_memory(
    make_profile: MakeProfile, make_model: Callable[..., Model], place: Place
) -> None:
    strange = make_model(parameters=10**12, saved_sample_bytes=1e13)
    found = GuardedEstimator(make_profile(strange)).estimate(place({"device": "H200", "batch": 4096}))
    assert not found.memory.by_model[0]
    assert found.chosen.memory[0] == found.rule.memory[0]
    assert "unlike those of the 28 measured models" in found.memory.words(0)


def test_parts_still_add_up_and_network_and_input_are_corrected_too(
    make_profile: MakeProfile, place: Place
) -> None:
    where = place({"device": "A100", "nodes": 4, "network": 1e7}, {"device": "A100"})
    found = GuardedEstimator(make_profile(input_wait=0.1), None, [earlier(1.5)]).estimate(where)
    step = found.chosen
    parts = step.launch + step.compute + step.traffic + step.update + step.network + step.input
    assert parts == pytest.approx(step.total)
    assert found.time.by_model.all()
    assert (step.total > found.rule.total).all()
    # One device is what was run; four share less with it.
    assert step.total[1] / found.rule.total[1] > step.total[0] / found.rule.total[0]


def test_every_spelling_of_an_accelerator_is_the_same_and_an_unknown_one_teaches_nothing(
    make_profile: MakeProfile, place: Place
) -> None:
    where = place({"device": "A100-80GB"})
    runs = [[earlier(1.5, accelerator=name)] for name in ("A100-80GB", "a100-80gb", "Z9000")]
    same, spelled, unknown = (GuardedEstimator(make_profile(), None, r).estimate(where) for r in runs)
    assert same.chosen.total.tolist() == spelled.chosen.total.tolist()
    assert unknown.chosen.total.tolist() == unknown.rule.total.tolist()


def test_outcomes_on_cpus_correct_cpus_only(make_profile: MakeProfile, place: Place) -> None:
    where = place({"device": None}, {"device": "A100"})
    found = GuardedEstimator(make_profile(), None, [earlier(1.3, accelerator=None)]).estimate(where)
    assert found.time.by_model.tolist() == [True, False]
    assert "were on CPUs" in found.time.words(1)


def test_thousands_of_placements_are_answered_as_one_is(make_profile: MakeProfile, place: Place) -> None:
    rows = [
        {"device": device, "batch": batch, "nodes": nodes}
        for device in ("A100", "T4", None)
        for batch in (1, 16, 256)
        for nodes in (1, 4)
    ]
    estimator = GuardedEstimator(make_profile(), None, [earlier(1.4), earlier(1.2, batch=64.0)])
    together = estimator.estimate(place(*rows))
    for i, row in enumerate(rows):
        alone = estimator.estimate(place(row))
        for name in ("total", "low", "high", "memory", "memory_high"):
            pair = getattr(together.chosen, name)[i], getattr(alone.chosen, name)[0]
            assert np.isclose(*pair, rtol=1e-9)
