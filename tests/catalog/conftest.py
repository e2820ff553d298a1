"""Offers to test with."""

from datetime import date

import pytest
from hypothesis import settings

from trimtab.core import Offer

# A busy machine must not fail a law: examples may take their time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def one_offer() -> Offer:
    return Offer(
        cloud="aws",
        region="mars-1",
        instance="p9.huge",
        vcpus=8.0,
        memory=2.0**36,
        accelerator="H200",
        accelerators=1,
        price=0.01,
        spot_price=None,
        network=1e9,
        price_date=date(2026, 1, 2),
    )
