"""What holds of every few-shot predictor that is trained with PyTorch."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError, MissingDependencyError
from trimtab.predict.fewshot import Case, Fitted, Predictor
from trimtab.predict.fewshot.flash import Flash
from trimtab.predict.fewshot.schema import metrics_table
from trimtab.predict.fewshot.sizeless import Sizeless
from trimtab.predict.fewshot.training import seeded

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

MakeCase = Callable[..., Case]
BRIEF: tuple[Predictor, ...] = (
    Sizeless(epochs=3, neurons=16, batch=8),
    Flash(episodes=24, batch=8, neurons=16, recurrent_neurons=16, recurrent_inputs=16),
)
times = st.floats(1e-3, 1e4)
both = pytest.mark.parametrize("predictor", BRIEF, ids=lambda p: p.name)


def _training(make_case: MakeCase) -> list[Case]:
    curves = ((8.0, 4.0, 2.0, 1.0), (8.0, 8.0, 8.0, 8.0), (100.0, 60.0, 30.0, 29.0), (0.3, 0.2, 0.2, 0.1))
    return [make_case(curve, application=f"app{i}") for i, curve in enumerate(curves)]


@pytest.fixture(scope="module", params=BRIEF, ids=lambda p: p.name)
def fitted(request: pytest.FixtureRequest, make_case: MakeCase) -> Fitted:
    return request.param.fit(_training(make_case))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nobody_sees_what_has_not_been_run(fitted: Fitted, make_case: MakeCase, data: st.DataObject) -> None:
    known = np.array(sorted(data.draw(st.sets(st.integers(0, 3), min_size=1, max_size=3))))
    seconds = np.array(data.draw(st.lists(times, min_size=4, max_size=4)))
    hidden = np.setdiff1d(np.arange(4), known)
    case = make_case(seconds)
    changed, metrics, ok = seconds.copy(), case.metrics.copy(), case.ok.copy()
    changed[hidden] = data.draw(st.lists(times, min_size=len(hidden), max_size=len(hidden)))
    metrics[hidden] = 7.0
    ok[hidden] = False
    first = fitted.predict(case, known)
    assert first.shape == (4,)
    assert (first > 0).all()
    np.testing.assert_array_equal(first, fitted.predict(make_case(changed, metrics=metrics, ok=ok), known))
    np.testing.assert_array_equal(first, fitted.predict(case.seen_at(known), known))
    np.testing.assert_array_equal(first, fitted.predict(case, known[::-1]))


def test_a_prediction_needs_a_known_time(fitted: Fitted, make_case: MakeCase) -> None:
    with pytest.raises(BadInputError, match="no configuration is known"):
        fitted.predict(make_case(), np.array([], dtype=np.intp))
    with pytest.raises(BadInputError, match="256MB: known, but without a time"):
        fitted.predict(make_case((1.0, float("nan"), 1.0)), np.array([0, 1]))


def test_more_known_runs_than_the_network_has_room_for_are_welcome(
    fitted: Fitted, make_case: MakeCase
) -> None:
    seconds = fitted.predict(make_case((8.0, 4.0, 2.0, 1.0, 1.0, 1.0)), np.array([0, 1, 2, 4, 5]))
    assert np.isfinite(seconds).all()


def test_metrics_may_be_missing_later_and_new_ones_appear(fitted: Fitted, make_case: MakeCase) -> None:
    for metrics in (metrics_table(4), metrics_table(4, cpu_user=np.nan, heap_used=1e9)):
        seconds = fitted.predict(make_case(metrics=metrics), np.array([0, 2]))
        assert np.isfinite(seconds).all()


@both
def test_metrics_may_be_missing_in_training(predictor: Predictor, make_case: MakeCase) -> None:
    cases = [make_case(metrics=metrics_table(4)), make_case(application="other")]
    seconds = predictor.fit(cases).predict(make_case(metrics=metrics_table(4)), np.array([1]))
    assert np.isfinite(seconds).all()


@both
def test_one_case_is_enough_to_learn_from(predictor: Predictor, make_case: MakeCase) -> None:
    fitted = predictor.fit([make_case((8.0, 4.0))])
    for known in ([0], [0, 1], [0, 1, 2]):
        assert np.isfinite(fitted.predict(make_case(), np.array(known))).all()


@both
def test_who_learned_nothing_answers_with_the_mean_of_the_known(
    predictor: Predictor, make_case: MakeCase
) -> None:
    fitted = predictor.fit([make_case((8.0,))])
    np.testing.assert_allclose(fitted.predict(make_case((8.0, 4.0, 2.0)), np.array([0, 2])), 4.0)


@both
def test_no_case_is_too_few(predictor: Predictor) -> None:
    with pytest.raises(BadInputError, match=f"{predictor.name} needs at least one case"):
        predictor.fit([])


@both
def test_the_same_seed_gives_the_same_network(predictor: Predictor, make_case: MakeCase) -> None:
    cases = _training(make_case)
    first, second = (predictor.fit(cases).predict(cases[0], np.array([1, 2])) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@both
def test_without_pytorch_the_sentence_says_how_to_get_it(
    predictor: Predictor, make_case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"needs PyTorch: pip install 'trimtab\[learn\]'"):
        predictor.fit(_training(make_case))


def test_seeded_work_leaves_the_random_numbers_and_threads_of_others_alone() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with seeded(torch, seed=7, threads=1):
        torch.rand(3)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
