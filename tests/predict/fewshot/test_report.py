"""The page of a prediction, in a real browser."""

from typing import Any

import pytest
from browser import Browser

from trimtab.predict import Foundation, Prediction, predict, prediction_report

FUNCTION = {
    "application": "thumbnailer",
    "observations": [{"memory": "512MB", "time": "240ms", "cpu_user": "60ms", "memory_used": "80MB"}],
}
ON_CLUSTERS = {
    "application": "join",
    "environment": "ec2",
    "observations": [
        {"configuration": "c4.large nodes=10", "time": "20m"},
        {"configuration": "m4.2xlarge nodes=10", "time": "11m"},
    ],
}


def _drawn(page: Any, name: str) -> list[dict[str, Any]]:
    """The traces that are seen in the chart of that name."""
    assert page.get_by_role("figure", name=name, exact=True).count() == 1
    result: list[dict[str, Any]] = page.evaluate(
        "name => document.querySelector(`[aria-label='${name}'] .js-plotly-plot`)._fullData.filter(trace => "
        "trace.visible === true).map(({name, x, y}) => ({name, x: Array.from(x), y: Array.from(y)}))",
        name,
    )
    return result


def _answer(shipped: Foundation, description: dict[str, Any], at: str = "all") -> Prediction:
    return predict(description, at, shipped)


def test_every_size_is_drawn_with_both_answers_and_the_known_run(
    browser: Browser, shipped: Foundation
) -> None:
    answer = _answer(shipped, FUNCTION)
    page = browser.show(prediction_report(answer, "abc123"))
    chosen, known, model, rule = _drawn(page, "Time")
    assert chosen["x"] == model["x"] == rule["x"] == [128, 256, 1024, 2048, 3008]
    assert rule["name"] == f"rule: {answer.rule_name}"
    assert (known["x"], known["y"]) == ([512], [pytest.approx(240)])
    assert [trace["x"] for trace in _drawn(page, "Cost")] == [[128, 256, 1024, 2048, 3008], [512]]
    assert page.locator("tbody tr").count() == 6
    text = page.inner_text("body")
    assert f"The {answer.chosen_by} answers: {answer.reason}" in text
    assert "Decision abc123" in text
    assert "Lambda's list prices of" in text
    assert browser.problems == []


def test_the_parts_of_the_chosen_configuration_are_drawn_and_add_up(
    browser: Browser, shipped: Foundation
) -> None:
    answer = _answer(shipped, FUNCTION)
    page = browser.show(prediction_report(answer), scheme="dark")
    for where in (answer.best.configuration, "2048MB"):
        page.get_by_label("Configuration").select_option(where)
        (shown,) = _drawn(page, "Parts of the answer")
        assert shown["x"][0] == "measured at 512MB"
        assert shown["x"][-1] == f"{where} in all"
        assert sum(shown["y"][:-1]) == pytest.approx(shown["y"][-1])
        assert shown["y"][-1] == pytest.approx(answer.at(where).time.value * 1e3)
    assert browser.problems == []


def test_without_javascript_the_table_says_it_all(browser: Browser, shipped: Foundation) -> None:
    answer = _answer(shipped, FUNCTION, "1024MB")
    page = browser.show(prediction_report(answer), script=False)
    assert page.get_by_role("row").count() == 3
    assert page.get_by_role("rowheader", name="1024MB").is_visible()
    page.get_by_text("4 parts").click()
    assert page.get_by_text("its CPU time: ").is_visible()
    assert not page.locator("#where").is_visible()


def test_every_cluster_is_in_the_charts_the_list_and_the_table(browser: Browser, shipped: Foundation) -> None:
    answer = _answer(shipped, ON_CLUSTERS)
    page = browser.show(prediction_report(answer))
    chosen, known, *_ = _drawn(page, "Time")
    assert sorted(chosen["x"] + known["x"]) == sorted(answer.request.places)
    assert known["x"] == ["c4.large nodes=10", "m4.2xlarge nodes=10"]
    assert page.locator("#where option").count() == len(answer.lines) - 2
    assert page.locator("tbody tr").count() == len(answer.lines)
    assert page.locator("tbody tr").first.inner_text().startswith(answer.best.configuration)
    assert browser.problems == []


def test_where_nothing_is_charged_no_cost_is_drawn(shipped: Foundation) -> None:
    text = prediction_report(_answer(shipped, {**FUNCTION, "environment": "openwhisk"}))
    assert 'aria-label="Cost"' not in text
    assert "Nothing is charged here" in text


def test_a_hostile_name_is_shown_and_not_run(browser: Browser, shipped: Foundation) -> None:
    name = "</title></h1><script>alert(1)</script><img src=x onerror=alert(2)>"
    page = browser.show(prediction_report(_answer(shipped, {**FUNCTION, "application": name})))
    assert page.locator("h1").inner_text() == f"What {name} takes elsewhere"
    assert page.title() == f"Trimtab: {name}"
    assert page.locator("img").count() == 0
    assert browser.problems == []
