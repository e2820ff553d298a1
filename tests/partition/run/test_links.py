"""The link between two local processes."""

import pytest
from hypothesis import given, strategies as st

from trimtab.partition import measure_link
from trimtab.partition.run.links import SIZES, fitted


@given(bandwidth=st.floats(1e7, 1e11), latency=st.floats(1e-6, 1e-2))
def test_a_perfect_link_is_found_again(bandwidth: float, latency: float) -> None:
    link = fitted({size: latency + size / bandwidth for size in SIZES})
    assert link.bandwidth == pytest.approx(bandwidth, rel=1e-3)
    assert link.latency == pytest.approx(latency, rel=1e-3)


def test_two_processes_measure_a_link_that_could_be() -> None:
    link = measure_link(timeout=150.0)
    assert 1e6 < link.bandwidth < 1e12
    assert 0.0 <= link.latency < 1.0
    assert link.seconds.keys() == set(SIZES)
