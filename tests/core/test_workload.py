from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, strategies as st

from trimtab.core import Configuration, Offer

EIGHT = Offer(
    cloud="aws",
    region="us-east-1",
    instance="p5.48xlarge",
    vcpus=192.0,
    memory=2.0**41,
    accelerator="H100",
    accelerators=8,
    price=0.010,
    spot_price=0.004,
    network=4e11,
    price_date=date(2026, 1, 2),
)
NONE = replace(EIGHT, instance="c7i.large", accelerator=None, accelerators=0)


def test_an_on_demand_configuration_costs_the_price_of_every_node() -> None:
    assert Configuration(EIGHT, nodes=3, batch_size=64, spot=False).price == pytest.approx(0.030)


def test_a_spot_configuration_costs_the_spot_price_of_every_node() -> None:
    assert Configuration(EIGHT, nodes=3, batch_size=64, spot=True).price == pytest.approx(0.012)


def test_a_free_spot_machine_costs_nothing() -> None:
    assert Configuration(replace(EIGHT, spot_price=0.0), nodes=3, batch_size=64, spot=True).price == 0.0


def test_where_there_is_no_spot_price_the_full_price_counts() -> None:
    offer = replace(EIGHT, spot_price=None)
    assert Configuration(offer, nodes=2, batch_size=64, spot=True).price == pytest.approx(0.020)


@given(st.integers(1, 1000), st.booleans())
def test_the_price_grows_with_the_nodes(nodes: int, spot: bool) -> None:
    one = Configuration(EIGHT, 1, 64, spot)
    assert replace(one, nodes=nodes).price == pytest.approx(nodes * one.price)


@pytest.mark.parametrize(
    ("offer", "nodes", "devices"), [(EIGHT, 1, 8), (EIGHT, 3, 24), (NONE, 1, 1), (NONE, 3, 3)]
)
def test_every_accelerator_is_a_device_and_so_is_a_node_without_one(
    offer: Offer, nodes: int, devices: int
) -> None:
    assert Configuration(offer, nodes, 64, False).devices == devices


def test_names_say_what_runs_where() -> None:
    assert EIGHT.key == "aws/us-east-1/p5.48xlarge"
    assert Configuration(EIGHT, 2, 64, True).key == "aws/us-east-1/p5.48xlarge x2 b64 spot"
    assert Configuration(EIGHT, 2, 64, False).key == "aws/us-east-1/p5.48xlarge x2 b64"
