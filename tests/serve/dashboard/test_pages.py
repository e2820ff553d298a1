"""Every page, in a real browser: both themes, narrow screens, without a network, for everybody."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from dashboard_house import faults

READY = {
    "/": "Groups of nodes",
    "/jobs": "Queue and history",
    "/recommend": "What you want",
    "/partition": "Earlier plans",
    "/resize": "Resize",
    "/fabric": "Fabric",
    "/decisions": "The ledger",
    "/models": "Drift",
    "/catalog": "Accelerators",
}
PAGES = tuple(READY)


def shown(house: Any, page: Any, path: str) -> None:
    """The page, once it is drawn and connected."""
    page.goto(house.url + path)
    page.get_by_role("heading", name=READY[path], exact=True).wait_for()
    page.wait_for_function("window.did_handshake")


@pytest.fixture(scope="module", params=["light", "dark"])
def look(request: pytest.FixtureRequest, house: Any) -> Iterator[tuple[str, Any]]:
    """A theme, and the browser of somebody who wants it; what it has fetched once stays with it."""
    with house.visitor(scheme=request.param) as page:
        yield request.param, page


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_fetches_nothing_from_elsewhere(
    house: Any, look: tuple[str, Any], path: str
) -> None:
    theme, page = look
    shown(house, page, path)
    assert page.evaluate("document.body.classList.contains('body--dark')") is (theme == "dark")
    assert re.search(r"--[a-z]", page.locator("body").inner_text()) is None
    assert faults(page) == []
    assert house.problems == []


def test_every_page_fits_a_narrow_screen_and_its_navigation_opens(house: Any) -> None:
    with house.visitor(width=390) as page:
        for path in PAGES:
            shown(house, page, path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        page.get_by_role("button", name="Navigation").click()
        page.get_by_role("link", name="Fleet").click()
        page.get_by_role("heading", name="Fleet", exact=True).wait_for()
        assert faults(page) == []
    assert house.problems == []


def test_keys_lead_to_pages_and_filters_and_change_the_theme_for_good(house: Any) -> None:
    with house.visitor() as page:
        shown(house, page, "/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to main content"
        page.keyboard.press("g")
        page.keyboard.press("j")
        page.get_by_role("heading", name="Queue and history").wait_for()
        page.wait_for_function("window.did_handshake")
        page.keyboard.press("/")
        page.keyboard.type("goes-on")
        page.wait_for_function("document.querySelectorAll('tbody tr').length === 1")
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("t")
        page.wait_for_function("document.body.classList.contains('body--dark')")
        shown(house, page, "/jobs")
        page.wait_for_function("document.body.classList.contains('body--dark')")
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Shortcuts").wait_for()
        page.keyboard.press("Escape")
    assert house.problems == []
