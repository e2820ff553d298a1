from collections.abc import Callable

import numpy as np
from hypothesis import given, strategies as st

from trimtab.predict.fewshot import Case
from trimtab.predict.fewshot.batches import Stack, batch_of, input_width
from trimtab.predict.fewshot.features import Encoder

MakeCase = Callable[..., Case]


def _stack(make_case: MakeCase) -> Stack:
    """One case with four runs, and one with two and a configuration that has no time."""
    cases = [make_case((8.0, 4.0, 2.0, 1.0)), make_case((np.nan, 60.0, 50.0))]
    return Stack.of(Encoder.of(cases), cases)


@given(seed=st.integers(0, 1000), shots=st.integers(1, 3), targets=st.integers(1, 3))
def test_an_episode_never_predicts_what_it_knows(
    make_case: MakeCase, seed: int, shots: int, targets: int
) -> None:
    stack = _stack(make_case)
    cases = np.zeros(50, dtype=np.intp)
    drawn = stack.draw(cases, shots, targets, 3, np.random.default_rng(seed))
    assert drawn.seen.shape == (50, shots, stack.encoder.observation_width)
    assert drawn.inputs.shape == (50, min(targets, 4 - shots), input_width(stack.encoder, 3))
    # Times are 1, 2, 4, 8: a target's is none of the known ones, so the sum over all four is what it is.
    if shots + targets >= 4:
        total = drawn.level * 4 + drawn.log_factor.sum(axis=1)
        np.testing.assert_allclose(total, np.log(64.0), rtol=1e-5)


def test_what_has_no_time_is_neither_known_nor_a_target(make_case: MakeCase) -> None:
    stack = _stack(make_case)
    drawn = stack.draw(np.ones(100, dtype=np.intp), 1, 3, 3, np.random.default_rng(0))
    assert np.isfinite(drawn.seen).all()
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
    encoder = Encoder.of([case])
    batch = batch_of(encoder, case, np.array([3, 0]), 3)
    width = encoder.observation_width
    np.testing.assert_array_equal(batch.inputs[0, 1, :width], batch.seen[0, 0])
    np.testing.assert_array_equal(batch.inputs[0, 2, :width], batch.seen[0, 1])
    assert (batch.inputs[0, :, 2 * width : 3 * width] == 0.0).all()
    crowded = batch_of(encoder, case, np.array([0, 1, 3]), 1)
    np.testing.assert_array_equal(crowded.inputs[0, 2, :width], crowded.seen[0, 1])
