"""What price lists do not say: network bandwidth."""

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog.instances import GBIT, corrected, network_bandwidth


@pytest.mark.parametrize(
    ("cloud", "instance", "gbit"),
    [
        ("aws", "p5.48xlarge", 3200),
        ("aws", "p5en.48xlarge", 3200),
        ("aws", "p4d.24xlarge", 400),
        ("aws", "g4dn.8xlarge", 50),
        ("aws", "m7i.24xlarge", 37.5),
        ("gcp", "a3-megagpu-8g", 1800),
        ("gcp", "n1-standard-8+V100x1", 16),
        ("gcp", "n1-standard-64+V100x8", 32),
        ("azure", "Standard_ND96isr_H200_v5", 3200),
        ("azure", "Standard_ND96amsr_A100_v4", 1600),
    ],
)
def test_documented_bandwidths(cloud: str, instance: str, gbit: float) -> None:
    assert network_bandwidth(cloud, instance, 1) == gbit * GBIT


@given(st.floats(0, 500), st.floats(0, 500))
def test_an_unlisted_instance_gets_a_cautious_guess_that_grows_with_its_vcpus(a: float, b: float) -> None:
    low, high = (network_bandwidth("nowhere", "x", vcpus) for vcpus in sorted((a, b)))
    assert 0.5 * GBIT <= low <= high <= 25 * GBIT


def test_corrections_touch_only_what_they_name() -> None:
    assert corrected("azure", "Standard_NC40ads_H100_v5", "H100", 1) == ("H100-NVL", 1)
    assert corrected("aws", "p5.48xlarge", "H100", 8) == ("H100", 8)
    assert corrected("aws", "m7i.large", None, 0) == (None, 0)
