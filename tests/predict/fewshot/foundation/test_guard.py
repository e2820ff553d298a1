"""Who answers, and that both answers and an honest range are always there."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.predict import Foundation, Guarded, Request, guarded
from trimtab.predict.fewshot import BUNDLED_FUNCTIONS, Case, Curves, FittedOurs, Ours, functions
from trimtab.predict.fewshot.encoder import Adapted
from trimtab.predict.fewshot.foundation.acquainted import Acquainted

Ask = Callable[..., Request]

CLEARLY_BETTER = {"trimtab": {1: 0.1, 2: 0.1, 3: 0.1}, "CPU share": {1: 0.5, 2: 0.5, 3: 0.5}}


def _guarded(request: Request, fitted: FittedOurs | None = None) -> Guarded:
    found = guarded(fitted or request.fitted, request.case, request.known)
    rows = len(request.case)
    for array in (found.model, found.rule, found.low, found.high):
        assert array.shape == (rows,)
        assert np.isfinite(array).all()
        assert (array > 0).all()
    assert (found.low <= found.seconds).all()
    assert (found.seconds <= found.high).all()
    assert found.chosen_by in ("model", "rule")
    assert found.reason
    assert found.rule_name in request.fitted.rules
    return found


def test_an_ordinary_function_is_answered_by_the_model_that_won_the_backtest(ask: Ask) -> None:
    found = _guarded(ask())
    assert found.chosen_by == "model"
    assert "in the backtest the model's mean error was" in found.reason
    np.testing.assert_array_equal(found.seconds, found.model)


@pytest.mark.parametrize(
    "odd",
    [
        {"memory": "512MB", "time": "300d"},
        {"memory": "512MB", "time": "2us"},
        {"memory": "512MB", "time": "1s", "context_switches": 1e20, "bytes_read": 1e23},
    ],
    ids=["takes forever", "takes nothing", "switches and reads without end"],
)
def test_what_is_far_from_everything_is_left_to_the_rule(ask: Ask, odd: dict[str, object]) -> None:
    found = _guarded(ask(odd))
    assert found.chosen_by == "rule"
    assert found.unlike > 4
    assert "nothing like this was learned from" in found.reason
    np.testing.assert_array_equal(found.seconds, found.rule)


def _far_from_all(request: Request) -> FittedOurs:
    """The same predictor, had all unseen applications been just like known ones."""
    fitted = request.fitted
    assert isinstance(fitted, Acquainted)
    assert fitted.shared is not None
    near = replace(fitted.shared.neighbourhood, unseen={request.corpus: np.zeros((3, 2), dtype=np.float32)})
    return replace(fitted, errors=CLEARLY_BETTER, shared=replace(fitted.shared, neighbourhood=near))


def test_an_embedding_far_from_all_known_ones_is_left_to_the_rule(ask: Ask) -> None:
    request = ask()
    found = _guarded(request, _far_from_all(request))
    assert found.score == 1.0
    assert found.chosen_by == "rule"
    assert found.answering is request.fitted.rules[found.rule_name]
    assert "100.0% of the applications nobody had seen were nearer to known ones" in found.reason
    assert f"most alike is {found.alike[0]}" in found.reason


def test_how_far_it_is_and_what_is_alike_comes_with_every_answer(ask: Ask) -> None:
    found = _guarded(ask())
    assert found.score is not None
    assert 0.0 <= found.score <= 0.99
    assert len(found.alike) == 3
    assert all(name.endswith(("(lambda)", "(openwhisk)")) for name in found.alike)


def test_what_is_far_but_was_run_twice_is_answered_after_fine_tuning_if_that_does_better(ask: Ask) -> None:
    """A function that gets slower with memory: no share of a CPU explains that."""
    sizes = (128, 512, 2048)
    request = ask(*({"memory": f"{size}MB", "time": f"{size}ms"} for size in sizes))
    found = _guarded(request, _far_from_all(request))
    assert found.chosen_by == "model"
    assert isinstance(found.answering, Adapted)
    assert "but fine-tuned on its own runs the encoder misses each from the others by" in found.reason
    np.testing.assert_array_equal(found.seconds, found.answering.predict(request.case, request.known))


def test_what_the_rule_explains_well_is_not_fine_tuned(ask: Ask) -> None:
    """Nothing but computing on a share of one CPU: the rule has each run from the others to the digit."""
    request = ask(*({"memory": f"{size}MB", "time": f"{64_000_000 // size}us"} for size in (128, 256, 512)))
    found = _guarded(request, _far_from_all(request))
    assert found.chosen_by == "rule"


def test_without_an_encoder_there_is_no_score(foundation: Foundation, cases: tuple[Case, ...]) -> None:
    known = np.array([1])
    found = guarded(foundation.predictors["functions"], cases[12].seen_at(known), known)
    assert found.score is None
    assert found.alike == ()


def test_a_rule_that_won_the_backtest_answers(ask: Ask) -> None:
    request = ask()
    errors = {**CLEARLY_BETTER, "median ratio": {1: 0.05, 2: 0.05, 3: 0.05}}
    found = _guarded(request, replace(request.fitted, errors=errors))
    assert found.chosen_by == "rule"
    assert found.rule_name == "median ratio"
    assert "the model's mean error was 10%, that of the best rule (median ratio) 5%" in found.reason


def test_a_draw_goes_to_the_rule(ask: Ask) -> None:
    request = ask()
    draw = {who: {1: 0.1} for who in ("trimtab", "CPU share")}
    assert _guarded(request, replace(request.fitted, errors=draw)).chosen_by == "rule"


def test_the_backtest_with_as_many_runs_decides(ask: Ask) -> None:
    errors = {"trimtab": {1: 0.2, 2: 0.2, 3: 0.2}, "CPU share": {1: 0.4, 2: 0.1, 3: 0.4}}
    runs = [{"memory": f"{size}MB", "time": f"{round(123000 / size)}ms"} for size in (128, 256, 512, 1024)]
    who = []
    for count in (1, 2, 3, 4):
        request = ask(*runs[:count])
        who.append(_guarded(request, replace(request.fitted, errors=errors)).chosen_by)
    assert who == ["model", "rule", "model", "model"]


def test_a_range_that_says_nothing_is_left_to_the_rule(ask: Ask) -> None:
    request = ask()
    doubtful = replace(request.fitted, errors=CLEARLY_BETTER, margins={1: 2.0, 2: 2.0, 3: 2.0})
    found = _guarded(request, doubtful)
    assert found.chosen_by == "rule"
    assert "says nothing" in found.reason


def test_fewer_runs_than_were_tested_count_as_the_most_that_were(ask: Ask) -> None:
    request = ask({"memory": "512MB", "time": "1s"}, {"memory": "1GB", "time": "600ms"})
    errors = {"trimtab": {1: 0.1}, "CPU share": {1: 0.5}}
    assert _guarded(request, replace(request.fitted, errors=errors)).chosen_by == "model"


def test_a_model_never_tested_leaves_it_to_the_rule(ask: Ask) -> None:
    request = ask()
    found = _guarded(request, replace(request.fitted, errors={}))
    assert found.chosen_by == "rule"
    assert "was never tested" in found.reason


def test_one_application_to_learn_from_is_no_test(cases: tuple[Case, ...]) -> None:
    alone = Ours(members=(Curves(),)).fit([cases[0]])
    found = guarded(alone, cases[1].seen_at(np.array([0])), np.array([0]))
    assert found.chosen_by == "rule"
    assert "was never tested" in found.reason


def test_a_rule_that_is_not_there_is_not_asked(ask: Ask) -> None:
    request = ask()
    errors = {**CLEARLY_BETTER, "a rule of another version": {1: 0.01}}
    assert _guarded(request, replace(request.fitted, errors=errors)).rule_name == "CPU share"


def test_measured_functions_are_mostly_answered_by_the_model(ask: Ask) -> None:
    fitted = ask().fitted
    some = functions.read(BUNDLED_FUNCTIONS).completed().cases[::25]
    known = np.array([2])
    chosen = [guarded(fitted, case.seen_at(known), known).chosen_by for case in some]
    assert chosen.count("model") >= 0.9 * len(chosen)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seconds=st.floats(1e-9, 1e10),
    size=st.integers(1, 999_999),
    others=st.sets(st.integers(1, 999_999), min_size=1, max_size=4),
    switches=st.none() | st.floats(0, 1e24),
    environment=st.sampled_from(["lambda", "openwhisk"]),
)
def test_whatever_was_run_there_is_an_answer_within_its_range(
    ask: Ask, seconds: float, size: int, others: set[int], switches: float | None, environment: str
) -> None:
    run = {"memory": f"{size}MB", "time": seconds}
    if switches is not None:
        run["context_switches"] = switches
    others = others - {size} or {size % 999_999 + 1}
    found = _guarded(ask(run, at=tuple(f"{other}MB" for other in others), environment=environment))
    json.dumps([found.seconds.tolist(), found.unlike], allow_nan=False)
