"""Pictures for the docs: made only where TRIMTAB_SCREENSHOTS names the folder that they go to."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_house import furnish, open_house

from trimtab.core import Profile
from trimtab.observe import save_profile

FOLDER = os.environ.get("TRIMTAB_SCREENSHOTS", "")
LARGEST = 150_000
SHOWN = {
    "fleet": ("/", "Groups of nodes"),
    "jobs": ("/jobs", "Queue and history"),
    "recommend": ("/recommend", "What you want"),
    "partition": ("/partition", "Earlier plans"),
    "decisions": ("/decisions", "The ledger"),
    "models": ("/models", "Drift"),
    "catalog": ("/catalog", "Accelerators"),
}


def _recommend(page: Any) -> None:
    page.get_by_role("button", name="Recommend").click()
    page.get_by_role("heading", name="Cost against time").wait_for()
    page.evaluate("document.querySelector('figure.chart').scrollIntoView({block: 'center'})")


def _plan(page: Any) -> None:
    names = ["stem", *(f"block {number}" for number in range(10)), "head"]
    layer = {"kind": "matmul", "flop": 4e10, "parameters": 4e8, "saved": 4e6}
    nodes = [{"name": item, **layer} for item in names]
    edges = [{"from": a, "to": b, "bytes": 4e6} for a, b in itertools.pairwise(names)]
    graph = json.dumps({"name": "twelve blocks", "nodes": nodes, "edges": edges}).encode()
    file = {"name": "blocks.json", "mimeType": "application/json", "buffer": graph}
    page.get_by_label("A graph file").set_input_files(file)
    page.get_by_text("is ready").wait_for()
    page.get_by_label("Devices, like").fill("t4:8/2")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("heading", name="The schedule of one step").wait_for()
    page.evaluate("document.querySelectorAll('.paper')[1].scrollIntoView({block: 'end'})")


DONE = {"recommend": _recommend, "partition": _plan}
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
        if name in DONE:
            DONE[name](page)
        charts = page.locator("figure.chart").count()
        page.wait_for_function(
            "n => document.querySelectorAll('.js-plotly-plot .main-svg').length >= n", arg=charts
        )
        written = Path(FOLDER) / f"{name}.png"
        page.screenshot(path=written)
    assert written.stat().st_size < LARGEST


def test_the_report_is_drawn_for_the_readme(
    tmp_path: Path, chromium: Any, make_profile: Callable[..., Profile]
) -> None:
    report = tmp_path / "report.html"
    profile = tmp_path / "profile.json"
    save_profile(make_profile(), profile)
    command = [sys.executable, "-c", "from trimtab.cli import main; main()", "recommend", str(profile)]
    subprocess.run([*command, "--spot", "--html", str(report)], check=True, capture_output=True)
    page = chromium.new_page(viewport={"width": 1200, "height": 800})
    page.goto(report.as_uri())
    page.wait_for_selector(".js-plotly-plot .main-svg")
    written = Path(FOLDER) / "report.png"
    page.screenshot(path=written)
    assert written.stat().st_size < LARGEST
