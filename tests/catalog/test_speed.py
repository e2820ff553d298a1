"""A filtered query over 60,000 offers, loading included, while someone waits."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.catalog import OfferTable, load_offers, save_table
from trimtab.catalog.offers import imported_path
from trimtab.core import Offer

ROWS = 60_000


@pytest.fixture
def sixty_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_offer: Offer) -> None:
    """Three providers' imports: 60,000 offers of 3,000 instance types in 20 regions."""
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    names = ("T4", "A100", "H100", None)
    for cloud in ("aws", "azure", "gcp"):
        rows = (
            replace(
                one_offer,
                cloud=cloud,
                region=f"{'us' if n % 3 else 'eu'}-{n % 20}",
                instance=f"type-{n // 20}",
                accelerator=names[n % 4],
                price=0.001 + n * 1e-6,
            )
            for n in range(ROWS // 3)
        )
        save_table(OfferTable.from_offers(rows), imported_path(cloud))


@pytest.mark.usefixtures("sixty_thousand")
def test_loading_and_asking_sixty_thousand_offers_takes_under_50_ms() -> None:
    load_seconds, query_seconds = [], []
    for _ in range(7):
        started = time.perf_counter()
        table = load_offers()
        loaded = time.perf_counter()
        result = table.where(cloud=["aws", "gcp"], region="us-*", accelerator="h100-sxm", max_price=0.02)
        query_seconds.append(time.perf_counter() - loaded)
        load_seconds.append(loaded - started)
    assert len(table.where(cloud=["aws", "azure", "gcp"])) == ROWS
    assert 0 < len(result) < ROWS
    print(
        f"\n{ROWS} offers: loaded in {sorted(load_seconds)[3] * 1e3:.1f} ms, "
        f"queried in {sorted(query_seconds)[3] * 1e3:.1f} ms (medians of 7)"
    )
    # The quickest round: what the code needs, whatever else the machine is doing.
    assert min(query_seconds) < 0.025
    assert min(load_seconds) + min(query_seconds) < 0.050
