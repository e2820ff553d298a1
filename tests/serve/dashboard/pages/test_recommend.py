"""The ranking of configurations, and profiles that people upload."""

import json
import re
from typing import Any

import pytest
from dashboard_house import profile_of

from trimtab.core import BadInputError, to_plain
from trimtab.serve.dashboard.pages.recommend import read_profile
from trimtab.serve.dashboard.widgets import without_flags

# Height of each row of the ranking in lines of text.
LINES = """() => [...document.querySelectorAll('[aria-label=Configurations] tbody tr')].map(row => {
  const style = getComputedStyle(row.querySelector('td'));
  const padding = parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
  return (row.getBoundingClientRect().height - padding) / parseFloat(style.lineHeight);
})"""
WIDE = "document.querySelector('[aria-label=Configurations] .q-table__middle')"


def test_the_ranking_shows_25_rows_of_at_most_three_lines(house: Any) -> None:
    with house.visitor(width=1400) as page:
        page.goto(f"{house.url}/recommend")
        page.wait_for_function("window.did_handshake")
        page.get_by_label("Or samples in all").fill("3000000")
        page.get_by_label("Nodes, at most").fill("4")
        page.get_by_role("button", name="Recommend").click()
        rows = page.locator("[aria-label=Configurations] tbody tr")
        rows.first.wait_for()
        assert rows.count() == 25
        assert max(page.evaluate(LINES)) <= 3.1
        assert page.evaluate(f"{WIDE}.scrollWidth <= {WIDE}.clientWidth")
        rows.first.locator("summary").click()
        assert rows.first.locator("details").inner_text() != rows.first.locator("summary").inner_text()
        assert re.search(r"--[a-z]", page.locator("body").inner_text()) is None
    assert house.problems == []


def test_options_of_commands_are_named_in_words_on_pages() -> None:
    sentence = "say --epochs or (--max-nodes 4); trimtab profile -- python train.py"
    assert without_flags(sentence) == "say epochs or (max nodes 4); trimtab profile -- python train.py"


def test_a_profile_is_read_as_it_was_written() -> None:
    made = profile_of()
    assert read_profile(json.dumps(to_plain(made)), "mine.json") == made


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', "\ud800", None, 7])
def test_what_is_no_profile_is_said_with_its_name_and_no_folder(content: object) -> None:
    with pytest.raises(BadInputError, match=r"mine\.json") as refused:
        read_profile(content, "mine.json")
    assert "/" not in str(refused.value).replace("trimtab profile -- COMMAND", "")
