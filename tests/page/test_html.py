"""The frame of every page: what is told as text stays text."""

from html.parser import HTMLParser

import plotly.graph_objects as go

from trimtab.page import bullets, chart, page, table

HOSTILE = '</title><script>alert("1")</script>'


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_titles_headings_and_bullets_are_text() -> None:
    tags = [tag for tag, _ in _Tags(page(HOSTILE, HOSTILE, bullets(HOSTILE, [HOSTILE]))).found]
    assert "script" not in tags
    assert tags.count("h1") == tags.count("h2") == tags.count("li") == 1


def test_a_list_of_nothing_has_no_heading() -> None:
    assert bullets("Notes", []) == ""


def test_a_chart_has_a_name_and_a_word_for_those_who_cannot_see_it_drawn() -> None:
    found = _Tags(chart(go.Figure(go.Bar(x=["a"], y=[1])), 'Time "now"', first=False)).found
    assert ("figure", {"class": "chart", "aria-label": 'Time "now"'}) in found
    assert "noscript" in [tag for tag, _ in found]


def test_only_the_first_chart_carries_the_library() -> None:
    figure = go.Figure(go.Bar(x=["a"], y=[1]))
    assert len(chart(figure, "a", first=True)) > 1_000_000
    assert len(chart(figure, "a", first=False)) < 20_000


def test_a_table_is_text_whose_numbers_and_best_row_can_be_told() -> None:
    found = _Tags(
        table(("Name", "Time"), [(HOSTILE, "1 s"), ("b", ("2 s", HOSTILE))], (1,), best_first=True)
    ).found
    tags = [tag for tag, _ in found]
    assert "script" not in tags
    assert tags.count("td") == 4
    assert [kind.get("class") for tag, kind in found if tag == "tr"] == [None, "first", None]
    assert [kind.get("class") for tag, kind in found if tag == "td"] == [None, "number"] * 2
    assert tags.count("small") == 1
