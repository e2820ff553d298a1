from collections.abc import Callable

import numpy as np
import pytest

from trimtab.predict.fewshot import Case
from trimtab.predict.fewshot.flash import Flash
from trimtab.predict.fewshot.rules import MeanOfKnown

pytest.importorskip("torch", reason="PyTorch is not installed")

MakeCase = Callable[..., Case]
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


def test_the_embedding_describes_the_known_runs_in_whatever_order(make_case: MakeCase) -> None:
    cases = _steep_and_flat(make_case, 8)
    fitted = Flash(episodes=64).fit(cases)
    for known in ([0], [0, 2], [0, 1, 3]):
        first = fitted.embedding(cases[1], np.array(known))
        assert first.shape == (32,)
        np.testing.assert_array_equal(first, fitted.embedding(cases[1], np.array(known[::-1])))
        np.testing.assert_array_equal(
            first, fitted.embedding(cases[1].seen_at(np.array(known)), np.array(known))
        )


def test_applications_that_behave_alike_have_embeddings_that_are_near(make_case: MakeCase) -> None:
    cases = _steep_and_flat(make_case, 20)
    fitted = SMALL.fit(cases)
    flat, flat_too, steep = (
        fitted.embedding(make_case(seconds), np.array([0, 2]))
        for seconds in ((4.0, 4.0, 4.0, 4.0), (5.0, 5.0, 5.0, 5.0), (8.0, 4.0, 2.0, 1.0))
    )
    assert np.linalg.norm(flat - flat_too) < 0.5 * np.linalg.norm(flat - steep)


def test_the_time_limit_ends_training_early(make_case: MakeCase) -> None:
    Flash(episodes=10**9, time_limit=0.2).fit(_steep_and_flat(make_case, 4))
