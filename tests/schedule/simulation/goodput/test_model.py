"""Models of step time, from what a job has shown."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.schedule.simulation.goodput import StepModel, fit

TRUE = StepModel(0.1, 0.01, within=0.05, within_more=0.02, across=0.2, across_more=0.05, overlap=1.6)
SEEN = [(1, 1, 8), (1, 1, 32), (1, 2, 16), (1, 4, 16), (2, 8, 16), (2, 12, 16)]


def _shown(
    model: StepModel, ways: list[tuple[int, int, int]]
) -> dict[tuple[int, int, int], tuple[float, float]]:
    shown = {}
    for way in ways:
        computing, step = model.times(*(np.array(float(part)) for part in way))
        shown[way] = (float(step), float(step - computing))
    return shown


def _step(model: StepModel, way: tuple[int, int, int]) -> float:
    return float(model.times(*(np.array(float(part)) for part in way))[1])


def test_a_model_that_made_the_steps_is_found_again() -> None:
    found = fit(_shown(TRUE, SEEN))
    for way in SEEN:
        assert _step(found, way) == pytest.approx(_step(TRUE, way), rel=0.01)
    for way in [(1, 3, 24), (2, 10, 8)]:
        assert _step(found, way) == pytest.approx(_step(TRUE, way), rel=0.1)


def test_who_has_tried_one_worker_believes_that_more_cost_nothing() -> None:
    found = fit({(1, 1, 16): (0.4, 0.0)})
    computing, step = found.times(np.array(1.0), np.array(4.0), np.array(16.0))
    assert float(computing) == pytest.approx(0.4)
    assert float(step) == pytest.approx(0.4, rel=1e-3)


def test_nodes_apart_are_believed_slower_than_workers_in_one() -> None:
    found = fit({(1, 1, 16): (0.4, 0.0), (1, 2, 16): (0.5, 0.1)})
    within, across = (found.times(np.array(nodes), np.array(4.0), np.array(16.0))[1] for nodes in (1.0, 2.0))
    assert across > within > 0.4


ways = st.tuples(st.integers(1, 3), st.integers(1, 16), st.integers(1, 512)).filter(
    lambda way: way[0] <= way[1]
)
seconds = st.tuples(st.floats(1e-3, 10.0), st.floats(0.0, 0.9)).map(lambda pair: (pair[0], pair[0] * pair[1]))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(ways, seconds, min_size=1, max_size=6))
def test_any_model_is_positive_and_finite(seen: dict[tuple[int, int, int], tuple[float, float]]) -> None:
    found = fit(seen)
    for way in [*seen, (1, 1, 1), (4, 64, 1024)]:
        computing, step = found.times(*(np.array(float(part)) for part in way))
        assert 0 < float(computing) < np.inf
        assert float(computing) * (1 - 1e-9) <= float(step) < np.inf
