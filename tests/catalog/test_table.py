"""Offer tables: rows survive the columns, and filters obey their laws."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import OfferTable, load_table, save_table
from trimtab.core import NotFoundError, Offer, StorageError

ACCELERATORS = ("T4", "A100", "H100", "Abacus")

offers = st.builds(
    Offer,
    cloud=st.sampled_from(["aws", "gcp"]),
    region=st.sampled_from(["us-east-1", "us-west-2", "eu-west-1"]),
    instance=st.sampled_from(["small", "large"]),
    vcpus=st.sampled_from([1.0, 8.0, 96.0]),
    memory=st.sampled_from([2.0**30, 2.0**35]),
    accelerator=st.sampled_from([None, *ACCELERATORS]),
    accelerators=st.integers(0, 8),
    price=st.floats(1e-6, 1e-1),
    spot_price=st.none() | st.floats(1e-6, 1e-1),
    network=st.just(1e9),
    price_date=st.dates(date(2020, 1, 1), date(2030, 1, 1)),
)
tables = st.lists(offers, max_size=12)
conditions: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "cloud": st.sampled_from(["aws", "GCP", ["aws", "gcp"], "azure"]),
        "region": st.sampled_from(["us-*", "eu-west-1", ["us-east-1", "eu-*"]]),
        "instance": st.sampled_from(["small", "*a*"]),
        "accelerator": st.sampled_from(["h100-sxm", ["T4", "A100"], "*00"]),
        "min_vcpus": st.sampled_from([1, 8]),
        "min_memory": st.sampled_from([0.0, 2.0**34]),
        "min_accelerators": st.integers(0, 8),
        "max_price": st.floats(1e-6, 1e-1),
    },
)


@given(tables)
def test_offers_come_back_as_they_went_in(rows: list[Offer]) -> None:
    table = OfferTable.from_offers(rows)
    assert table.offers() == rows == list(table)
    assert [table[i] for i in range(len(table))] == rows
    assert table.concat(table).offers() == rows + rows


@given(tables, conditions, st.booleans())
def test_a_filter_never_invents_or_reorders_rows(
    rows: list[Offer], requested: dict[str, Any], spot: bool
) -> None:
    result = OfferTable.from_offers(rows).where(**requested, spot=spot).offers()
    remaining = iter(rows)
    assert all(offer in remaining for offer in result)


@given(tables, conditions, conditions)
def test_filters_commute_and_repeat_without_effect(
    rows: list[Offer], first: dict[str, Any], second: dict[str, Any]
) -> None:
    table = OfferTable.from_offers(rows)
    one_way = table.where(**first).where(**second).offers()
    assert one_way == table.where(**second).where(**first).offers()
    assert one_way == table.where(**first).where(**second).where(**first).offers()


@given(tables, conditions)
def test_what_a_filter_keeps_meets_the_condition_and_what_it_drops_does_not(
    rows: list[Offer], requested: dict[str, Any]
) -> None:
    highest, least = requested.get("max_price", 1.0), requested.get("min_memory", 0.0)
    table = OfferTable.from_offers(rows)
    kept = table.where(max_price=highest, min_memory=least).offers()
    assert kept == [o for o in rows if o.price <= highest and o.memory >= least]


def test_with_spot_the_price_limit_is_about_the_spot_price(one_offer: Offer) -> None:
    cheap = replace(one_offer, spot_price=0.002)
    table = OfferTable.from_offers([one_offer, cheap])
    assert table.where(spot=True).offers() == [cheap]
    assert table.where(spot=True, max_price=0.003).offers() == [cheap]
    assert table.where(max_price=0.003).offers() == []


def test_accelerators_are_found_by_alias_and_unknown_ones_by_their_own_name(one_offer: Offer) -> None:
    odd = replace(one_offer, accelerator="Abacus 9000")
    table = OfferTable.from_offers([one_offer, odd])
    assert table.where(accelerator="h200-sxm").offers() == [one_offer]
    assert table.where(accelerator=["abacus 9000"]).offers() == [odd]
    assert len(table.where(accelerator="A100")) == 0
    with pytest.raises(NotFoundError, match='"Slide rule"'):
        table.where(accelerator="Slide rule")


def test_selecting_takes_masks_and_row_numbers(one_offer: Offer) -> None:
    rows = [replace(one_offer, vcpus=float(n)) for n in range(4)]
    table = OfferTable.from_offers(rows)
    assert table.select([3, 1]).offers() == [rows[3], rows[1]]
    assert table.select(table.vcpus < 2).offers() == rows[:2]
    assert table.select([]).offers() == []
    assert table[-1] == rows[3]
    with pytest.raises(IndexError, match="row 4"):
        table[4]


def test_columns_are_exposed_for_vectorized_use(one_offer: Offer) -> None:
    table = OfferTable.from_offers([one_offer, replace(one_offer, accelerator=None, accelerators=0)])
    assert table.accelerator.vocabulary == ("H200", "")
    assert table.accelerator.codes.tolist() == [0, 1]
    assert np.isnan(table.spot_price).all()
    assert table.price_date.tolist() == [date(2026, 1, 2)] * 2


@given(rows=tables)
def test_a_saved_table_loads_unchanged(tmp_path_factory: pytest.TempPathFactory, rows: list[Offer]) -> None:
    path = tmp_path_factory.mktemp("tables") / "sub" / "offers.npz"
    save_table(OfferTable.from_offers(rows), path)
    assert load_table(path).offers() == rows
    assert [p.name for p in path.parent.iterdir()] == ["offers.npz"]


def test_a_table_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, one_offer: Offer) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="TRIMTAB_HOME"):
        save_table(OfferTable.from_offers([one_offer]), tmp_path / "file" / "aws.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
