"""The offers that come with the package, and imported ones in their place."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import OfferTable, accelerator, load_offers, save_table
from trimtab.catalog.offers import GBIT, corrected, imported_path, network_bandwidth
from trimtab.core import Offer, StorageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    return tmp_path


def test_at_least_two_hundred_offers_and_the_large_clouds_in_two_regions_each() -> None:
    offers = load_offers().offers()
    assert len(offers) >= 200
    for cloud in ("aws", "azure", "gcp"):
        assert len({offer.region for offer in offers if offer.cloud == cloud}) >= 2


def test_every_offer_is_sane() -> None:
    offers = load_offers().offers()
    assert max(Counter(o.key for o in offers).values()) == 1
    for offer in offers:
        assert offer.vcpus >= 1, offer
        assert offer.memory >= 2**30, offer
        assert 0.01 <= offer.price * 3600 <= 200, offer
        assert offer.spot_price is None or 0 < offer.spot_price <= offer.price, offer
        assert 0 < offer.network <= 6400e9 / 8, offer
        assert offer.price_date.isoformat() >= "2026-08-22"
        assert (offer.accelerator is None) == (offer.accelerators == 0), offer
        assert offer.accelerator is None or accelerator(offer.accelerator).name == offer.accelerator


def test_accelerators_come_first_but_plain_machines_are_there_too() -> None:
    table = load_offers()
    assert len(table.where(min_accelerators=1)) > len(table) / 2
    for cloud in ("aws", "azure", "gcp"):
        plain = table.where(cloud=cloud).select(table.where(cloud=cloud).accelerators == 0)
        assert len(plain) >= 10
        assert plain.vcpus.max() / plain.vcpus.min() >= 16


@pytest.mark.parametrize(
    ("instance", "name", "count", "gbit", "low", "high"),
    [
        ("p4d.24xlarge", "A100", 8, 400, 15, 35),
        ("p5.48xlarge", "H100", 8, 3200, 40, 100),
        ("g5.48xlarge", "A10G", 8, 100, 15, 17),
        ("a2-highgpu-1g", "A100", 1, 24, 3, 5),
        ("a3-highgpu-8g", "H100", 8, 1000, 70, 120),
        ("a3-megagpu-8g", "H100", 8, 1800, 70, 120),
        ("n1-standard-8+T4x1", "T4", 1, 16, 0.5, 1),
        ("tpu-v3-8", "TPU-v3", 4, 16, 7, 9),
        ("Standard_ND96isr_H100_v5", "H100", 8, 3200, 90, 130),
        ("Standard_NC40ads_H100_v5", "H100-NVL", 1, 40, 6, 8),
    ],
)
def test_well_known_machines(
    instance: str, name: str, count: int, gbit: float, low: float, high: float
) -> None:
    result = load_offers().where(instance=instance).offers()
    assert result
    for offer in result:
        assert (offer.accelerator, offer.accelerators) == (name, count)
        assert offer.network == gbit * 1e9 / 8
        assert low <= offer.price * 3600 <= high


def test_imported_offers_take_the_place_of_a_providers_own(one_offer: Offer) -> None:
    before = load_offers()
    save_table(OfferTable.from_offers([one_offer]), imported_path("aws"))
    after = load_offers()
    assert after.where(cloud="aws").offers() == [one_offer]
    assert after.where(cloud=["gcp", "azure"]).offers() == before.where(cloud=["gcp", "azure"]).offers()


def test_a_damaged_import_is_reported_with_its_path(home: Path) -> None:
    (home / "catalog").mkdir()
    damaged = home / "catalog" / "aws.npz"
    for content in (b"", b"PK not really", b"\x93NUMPY"):
        damaged.write_bytes(content)
        with pytest.raises(StorageError, match=r"aws\.npz cannot be read .*import that provider again"):
            load_offers()


def test_columns_cannot_be_written_to() -> None:
    table = load_offers()
    with pytest.raises(ValueError, match="read-only"):
        table.price[0] = 0.0
    assert np.isfinite(table.price).all()


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
