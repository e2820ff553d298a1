"""The page people look at, in a real browser."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.catalog import load_offers
from trimtab.core import Profile, Workload
from trimtab.recommend import Request, html_report, recommend, work

MakeProfile = Callable[..., Profile]


def page_of(profile: Profile) -> str:
    return html_report(
        recommend(profile, load_offers(), Request(max_nodes=2, spot=True), work(profile)), "abc123"
    )


def test_a_name_with_markup_in_it_is_shown_not_run(make_profile: MakeProfile) -> None:
    hostile = replace(make_profile(), workload=Workload("<script>alert(1)</script>", command=("python", "x")))
    page = page_of(hostile)
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_page_draws_its_charts_offline(make_profile: MakeProfile, tmp_path: Path) -> None:
    browser_path = shutil.which("chromium")
    if browser_path is None:
        pytest.skip("Debian's chromium is not installed")
    from playwright.sync_api import sync_playwright

    file = tmp_path / "report.html"
    file.write_text(page_of(make_profile()), encoding="utf-8")
    problems: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on(
                "request",
                lambda request: problems.append(request.url) if request.url.startswith("http") else None,
            )
            page.goto(file.as_uri())
            page.wait_for_selector(".js-plotly-plot .main-svg")
            charts = page.locator(".js-plotly-plot").count()
            rows = page.locator("table tbody tr").count()
            drawn = page.evaluate(
                "Array.from(document.querySelectorAll('.js-plotly-plot')).map(p => p._fullData.length)"
            )
        finally:
            browser.close()
    assert problems == []
    assert charts == 2
    assert rows == 10
    assert all(traces > 3 for traces in drawn)
