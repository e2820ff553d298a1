"""Pages as people see them: in a real browser, without a network."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_CHARTS = "count => document.querySelectorAll('.js-plotly-plot .main-svg').length >= count"


class Browser:
    """Pages in Chromium; whatever goes wrong on one, or is fetched by it, is a problem."""

    def __init__(self, chromium: Any, folder: Path) -> None:
        self.chromium, self.folder = chromium, folder
        self.problems: list[str] = []

    def show(self, text: str, script: bool = True, scheme: str = "light", charts: int = 2) -> Any:
        """The page of an HTML text, once so many charts are drawn."""
        file = self.folder / "report.html"
        file.write_text(text, encoding="utf-8")
        page = self.chromium.new_context(java_script_enabled=script, color_scheme=scheme).new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        page.on("request", lambda one: self.problems.append(one.url) if "http" in one.url[:4] else None)
        page.goto(file.as_uri())
        if script:
            page.wait_for_function(_CHARTS, arg=charts)
        return page


def traces_drawn(page: Any) -> list[int]:
    """Number of traces of each chart."""
    found: list[int] = page.evaluate(
        "Array.from(document.querySelectorAll('.js-plotly-plot')).map(chart => chart._fullData.length)"
    )
    return found


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Chromium; the test is skipped where there is none."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Debian's chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield Browser(chromium, folder)
        chromium.close()
