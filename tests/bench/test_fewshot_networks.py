"""Properties of the few-shot predictors that are trained with PyTorch."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray
from trimtab_bench.fewshot_networks import (
    CaseEncoder,
    Columns,
    FittedNetwork,
    Flash,
    Sizeless,
    Stack,
    batch_of,
    input_width,
    seeded,
)

from trimtab.core import BadInputError, MissingDependencyError
from trimtab.predict.fewshot.case import METRICS, SETTINGS, Case, metrics_table
from trimtab.predict.fewshot.predictor import Fitted, Predictor
from trimtab.predict.fewshot.rules import MeanOfKnown

MakeCase = Callable[..., Case]


def _encoder(make_case: MakeCase) -> tuple[CaseEncoder, list[Case]]:
    cases = [
        make_case((8.0, 4.0, 2.0, 1.0)),
        make_case((80.0, 60.0, 50.0), metrics=metrics_table(3, cpu_user=[0.1, np.nan, 0.3], heap_used=1e6)),
    ]
    return CaseEncoder.of(cases), cases


def test_what_varies_has_mean_zero_and_spread_one() -> None:
    values = np.random.default_rng(0).lognormal(3.0, 2.0, (1000, 2))
    encoded = Columns.of(values).encode(values)
    np.testing.assert_allclose(np.median(encoded, axis=0), 0.0, atol=0.5)
    assert encoded.shape == (1000, 2)
    assert np.abs(encoded).max() <= 4.0


def test_unknown_is_the_mean_and_a_column_says_so() -> None:
    columns = Columns.of(np.array([[1.0, 5.0], [np.nan, 7.0], [3.0, 9.0]]))
    encoded = columns.encode(np.array([[np.nan, 7.0], [2.0, 7.0]]))
    np.testing.assert_allclose(encoded, [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])


def test_a_column_that_was_constant_or_absent_in_training_is_left_out_whatever_it_is_later() -> None:
    columns = Columns.of(np.array([[1.0, 5.0, np.nan], [2.0, 5.0, np.nan]]))
    assert columns.width == 1
    np.testing.assert_array_equal(
        columns.encode(np.array([[1.0, 5.0, np.nan]])), columns.encode(np.array([[1.0, 1e300, -7.0]]))
    )


def test_the_widths_are_as_announced_for_any_number_of_episodes(make_case: MakeCase) -> None:
    encoder, _ = _encoder(make_case)
    settings = np.full((5, 2, 3, len(SETTINGS)), 2.0)
    metrics = np.full((5, 2, 3, len(METRICS)), np.nan)
    assert encoder.targets(settings).shape == (5, 2, 3, encoder.target_width)
    seen = encoder.observations(settings, np.zeros((5, 2, 3)), metrics)
    assert seen.shape == (5, 2, 3, encoder.observation_width)
    assert np.isfinite(seen).all()


def test_many_episodes_at_once_are_the_same_as_one_by_one(make_case: MakeCase) -> None:
    encoder, (first, second) = _encoder(make_case)
    rows = [0, 2]
    together = encoder.observations(
        np.stack([case.settings[rows] for case in (first, second)]),
        np.stack([np.log(case.seconds[rows]) for case in (first, second)]),
        np.stack([case.metrics[rows] for case in (first, second)]),
    )
    for case, seen in zip((first, second), together, strict=True):
        alone = encoder.observations(case.settings[rows], np.log(case.seconds[rows]), case.metrics[rows])
        np.testing.assert_array_equal(seen, alone)


def test_a_time_is_seen_among_all_and_among_the_known_of_its_application(make_case: MakeCase) -> None:
    encoder, (case, _) = _encoder(make_case)
    seen = encoder.observations(case.settings, np.log(case.seconds), case.metrics)
    assert (np.diff(seen[:, -2:], axis=0) < 0).all()
    assert seen[:, -1].sum() == pytest.approx(0.0)
    alone = encoder.observations(case.settings[:1], np.log(case.seconds[:1]), case.metrics[:1])
    assert alone[0, -1] == 0.0


@given(value=st.floats(-1e100, 1e100) | st.just(float("nan")))
def test_nothing_a_run_shows_makes_a_feature_infinite(make_case: MakeCase, value: float) -> None:
    encoder, (case, _) = _encoder(make_case)
    seen = encoder.observations(case.settings, np.log(case.seconds), np.full_like(case.metrics, value))
    assert np.isfinite(seen).all()


def test_cases_without_a_time_still_make_an_encoder(make_case: MakeCase) -> None:
    encoder = CaseEncoder.of([make_case((np.nan, np.nan))])
    assert encoder.observation_width == 2


def _stack(make_case: MakeCase) -> Stack:
    """One case with four runs, and one with two and a configuration that has no time."""
    cases = [make_case((8.0, 4.0, 2.0, 1.0)), make_case((np.nan, 60.0, 50.0))]
    return Stack.of(CaseEncoder.of(cases), cases)


@given(seed=st.integers(0, 1000), shots=st.integers(1, 3), targets=st.integers(1, 3))
def test_an_episode_never_predicts_what_it_knows(
    make_case: MakeCase, seed: int, shots: int, targets: int
) -> None:
    stack = _stack(make_case)
    cases = np.zeros(50, dtype=np.intp)
    drawn = stack.draw(cases, shots, targets, 3, np.random.default_rng(seed))
    assert drawn.observed.shape == (50, shots, stack.encoder.observation_width)
    assert drawn.inputs.shape == (50, min(targets, 4 - shots), input_width(stack.encoder, 3))
    # Times are 1, 2, 4, 8: a target's is none of the known ones, so the sum over all four is what it is.
    if shots + targets >= 4:
        total = drawn.level * 4 + drawn.log_factor.sum(axis=1)
        np.testing.assert_allclose(total, np.log(64.0), rtol=1e-5)


def test_what_has_no_time_is_neither_known_nor_a_target(make_case: MakeCase) -> None:
    stack = _stack(make_case)
    drawn = stack.draw(np.ones(100, dtype=np.intp), 1, 3, 3, np.random.default_rng(0))
    assert np.isfinite(drawn.observed).all()
    np.testing.assert_array_equal(drawn.measured.sum(axis=1), 1)
    np.testing.assert_allclose(np.abs(drawn.log_factor[drawn.measured]), np.log(60.0 / 50.0), rtol=1e-5)


def test_an_episode_of_a_case_is_what_would_be_drawn_of_it(make_case: MakeCase) -> None:
    stack = _stack(make_case)
    case = make_case((8.0, 4.0, 2.0, 1.0))
    drawn = stack.draw(np.zeros(200, dtype=np.intp), 3, 1, 3, np.random.default_rng(0))
    for hidden in (0, 3):  # of the others, two are equally near to a target, and either may come first
        batch = batch_of(stack.encoder, case, np.setdiff1d(np.arange(4), hidden), 3)
        same = np.isclose(drawn.level, batch.level[0])
        assert same.any()
        np.testing.assert_allclose(drawn.inputs[same, 0] - batch.inputs[0, hidden], 0.0, atol=1e-5)


def test_the_nearest_known_comes_first_and_missing_places_are_zero(make_case: MakeCase) -> None:
    case = make_case((8.0, 4.0, 2.0, 1.0))
    encoder = CaseEncoder.of([case])
    batch = batch_of(encoder, case, np.array([3, 0]), 3)
    width = encoder.observation_width
    np.testing.assert_array_equal(batch.inputs[0, 1, :width], batch.observed[0, 0])
    np.testing.assert_array_equal(batch.inputs[0, 2, :width], batch.observed[0, 1])
    assert (batch.inputs[0, :, 2 * width : 3 * width] == 0.0).all()
    crowded = batch_of(encoder, case, np.array([0, 1, 3]), 1)
    np.testing.assert_array_equal(crowded.inputs[0, 2, :width], crowded.observed[0, 1])


torch = pytest.importorskip("torch", reason="PyTorch is not installed")

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
    np.testing.assert_array_equal(first, fitted.predict(case.known_at(known), known))
    np.testing.assert_array_equal(first, fitted.predict(case, known[::-1]))


def test_a_prediction_needs_a_known_time(fitted: Fitted, make_case: MakeCase) -> None:
    with pytest.raises(BadInputError):
        fitted.predict(make_case(), np.array([], dtype=np.intp))
    with pytest.raises(BadInputError, match="256MB"):
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
    with pytest.raises(BadInputError, match=predictor.name):
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
    with pytest.raises(MissingDependencyError, match=r"trimtab\[learn\]"):
        predictor.fit(_training(make_case))


def test_seeded_work_leaves_the_random_numbers_and_threads_of_others_alone() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with seeded(torch, seed=7, threads=1):
        torch.rand(3)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


pytest.importorskip("torch", reason="PyTorch is not installed")


def _busy_or_waiting(make_case: MakeCase, count: int) -> list[Case]:
    """A function that keeps its CPU busy halves its time with twice the memory; one that waits does not."""
    cases = []
    for i in range(count):
        busy = i % 2 == 0
        level = 0.5 * 1.3**i
        seconds = level / 2.0 ** np.arange(4) if busy else np.full(4, level)
        metrics = make_case(seconds).metrics.copy()
        metrics[:, 0] = 1.0 if busy else 0.1
        cases.append(make_case(seconds, application=f"app{i}", metrics=metrics))
    return cases


def _error(predictor: Fitted, case: Case, known: list[int]) -> float:
    hidden = np.setdiff1d(np.arange(len(case)), known)
    predicted = predictor.predict(case, np.array(known))
    return float(np.abs(predicted / case.seconds - 1.0)[hidden].mean())


@pytest.mark.parametrize("known", [[0], [1, 3], [0, 1, 3]], ids=str)
def test_it_learns_who_responds_to_memory(make_case: MakeCase, known: list[int]) -> None:
    cases = _busy_or_waiting(make_case, 16)
    met, training = cases[6:8], cases[:6] + cases[8:]
    fitted = Sizeless(epochs=100, neurons=64, batch=8, l2=1e-4).fit(training)
    busy, waiting = met
    assert _error(fitted, busy, known) < 0.5 * _error(MeanOfKnown(), busy, known)
    assert _error(fitted, waiting, known) < 0.15


def test_the_time_limit_ends_training_early(make_case: MakeCase) -> None:
    cases = _busy_or_waiting(make_case, 4)
    Sizeless(epochs=10**9, neurons=8, time_limit=0.2).fit(cases)


pytest.importorskip("torch", reason="PyTorch is not installed")

SMALL = Flash(
    episodes=8000, batch=32, neurons=64, recurrent_neurons=32, recurrent_inputs=32, learning_rate=1e-3
)


def _steep_and_flat(make_case: MakeCase, count: int) -> list[Case]:
    """Functions whose time falls with memory, each by its own power, which two runs of it reveal."""
    return [
        make_case(2.0 ** (i % 5) / 2.0 ** (np.arange(4) * (i % 4) / 3.0), application=f"app{i}")
        for i in range(count)
    ]


def test_it_learns_each_applications_own_law_from_two_runs(make_case: MakeCase) -> None:
    cases = _steep_and_flat(make_case, 20)
    met, training = cases[3:4], cases[:3] + cases[4:]
    fitted = SMALL.fit(training)
    for case in met:
        error = np.abs(fitted.predict(case, np.array([0, 1])) / case.seconds - 1.0).mean()
        rule = np.abs(MeanOfKnown().predict(case, np.array([0, 1])) / case.seconds - 1.0).mean()
        assert error < 0.25 * rule


def _embedding(fitted: FittedNetwork, case: Case, known: NDArray[np.intp]) -> NDArray[np.float64]:
    """Embedding of the known runs of an application."""
    rival = fitted.rival
    assert isinstance(rival, Flash)
    sequences = rival.sequences(batch_of(fitted.encoder, case, known, rival.places).observed)
    with torch.no_grad():
        embedding = rival.embed(torch, fitted.network, torch.from_numpy(sequences))
    return np.asarray(embedding[0].double().numpy())


def test_the_embedding_describes_the_known_runs_in_whatever_order(make_case: MakeCase) -> None:
    cases = _steep_and_flat(make_case, 8)
    fitted = Flash(episodes=64).fit(cases)
    for known in ([0], [0, 2], [0, 1, 3]):
        first = _embedding(fitted, cases[1], np.array(known))
        assert first.shape == (32,)
        np.testing.assert_array_equal(first, _embedding(fitted, cases[1], np.array(known[::-1])))
        np.testing.assert_array_equal(
            first, _embedding(fitted, cases[1].known_at(np.array(known)), np.array(known))
        )


def test_applications_that_behave_alike_have_embeddings_that_are_near(make_case: MakeCase) -> None:
    cases = _steep_and_flat(make_case, 20)
    fitted = SMALL.fit(cases)
    flat, flat_too, steep = (
        _embedding(fitted, make_case(seconds), np.array([0, 2]))
        for seconds in ((4.0, 4.0, 4.0, 4.0), (5.0, 5.0, 5.0, 5.0), (8.0, 4.0, 2.0, 1.0))
    )
    assert np.linalg.norm(flat - flat_too) < 0.5 * np.linalg.norm(flat - steep)


def test_the_time_limit_ends_the_training_of_flash_early(make_case: MakeCase) -> None:
    Flash(episodes=10**9, time_limit=0.2).fit(_steep_and_flat(make_case, 4))
