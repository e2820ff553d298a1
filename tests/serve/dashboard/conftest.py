"""Servers for the tests of all pages: one with something in it, one with tokens."""

from collections.abc import Iterator
from typing import Any

import pytest
from browser import open_browser
from dashboard_house import House, furnish, open_house


@pytest.fixture(scope="package")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all; each visitor has cookies of their own."""
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser.chromium


@pytest.fixture(scope="package")
def empty_house(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[House]:
    """A server whose store has tokens in it and nothing else."""
    with open_house(tmp_path_factory.mktemp("empty"), chromium) as house:
        yield house


@pytest.fixture(scope="package")
def house(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[House]:
    """A server with real jobs, decisions, a profile and an outcome; there is no token, so everybody is in."""
    with open_house(tmp_path_factory.mktemp("dashboard"), chromium) as house:
        furnish(house.store)
        yield house
