"""Pictures for the docs: made only where TRIMTAB_SCREENSHOTS names the folder that they go to."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_house import furnish, open_house

FOLDER = os.environ.get("TRIMTAB_SCREENSHOTS", "")
LARGEST = 150_000
SHOWN = {
    "fleet": ("/", "Groups of nodes"),
    "jobs": ("/jobs", "Queue and history"),
    "recommend": ("/recommend", "What you want"),
    "decisions": ("/decisions", "The ledger"),
    "models": ("/models", "Drift"),
    "catalog": ("/catalog", "Accelerators"),
}

pytestmark = pytest.mark.skipif(not FOLDER, reason="TRIMTAB_SCREENSHOTS names no folder to write pictures to")


@pytest.fixture(scope="module")
def fair_house(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Any]:
    with open_house(tmp_path_factory.mktemp("pictures"), chromium) as house:
        furnish(house.store, hostile="digits")
        yield house


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_is_drawn_for_the_docs(fair_house: Any, name: str) -> None:
    path, heading = SHOWN[name]
    with fair_house.visitor() as page:
        page.goto(fair_house.url + path)
        page.get_by_role("heading", name=heading, exact=True).wait_for()
        page.wait_for_function("window.did_handshake")
        if name == "recommend":
            page.get_by_role("button", name="Recommend").click()
            page.get_by_role("heading", name="Cost against time").scroll_into_view_if_needed()
            page.evaluate("document.querySelector('figure.chart').scrollIntoView({block: 'center'})")
        charts = page.locator("figure.chart").count()
        page.wait_for_function(
            "n => document.querySelectorAll('.js-plotly-plot .main-svg').length >= n", arg=charts
        )
        written = Path(FOLDER) / f"{name}.png"
        page.screenshot(path=written)
    assert written.stat().st_size < LARGEST
