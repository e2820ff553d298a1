"""The page people look at, in a real browser."""

from collections.abc import Callable
from dataclasses import replace

from browser import Browser, traces_drawn

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


def test_the_page_draws_its_charts_offline(make_profile: MakeProfile, browser: Browser) -> None:
    page = browser.show(page_of(make_profile()))
    charts = page.locator(".js-plotly-plot").count()
    rows = page.locator("table tbody tr").count()
    assert browser.problems == []
    assert charts == 3
    assert rows == 10
    assert all(traces > 3 for traces in traces_drawn(page))
