"""The page of a ranking, in a real browser."""

from pathlib import Path

import pytest
from browser import Browser, traces_drawn
from measured_jobs import JOBS, write_measured, write_spec

from trimtab.core import Goal
from trimtab.tune import JobSource, Ranking, rank, ranking_report


def ranked(folder: Path, jobs: tuple[str, ...] = tuple(JOBS), objective: str = "balanced") -> Ranking:
    points, local = write_measured(folder, {name: JOBS[name] for name in jobs})
    return rank(JobSource(write_spec(folder), "tune-me", points=points, local=local), Goal(objective))


def test_the_page_draws_ranking_and_importance_offline(tmp_path: Path, browser: Browser) -> None:
    said = list[str]()
    page = browser.show(ranking_report(ranked(tmp_path), said.append), charts=4)
    assert browser.problems == []
    assert traces_drawn(page) == [2, 1, 2, 2], "configurations and the best; ours; groups; features"
    text = page.inner_text("body")
    assert "Where to train tune-me" in text
    assert "What moves the model" in text
    assert "infrastructure" in text
    assert page.locator("table").first.locator("tbody tr").count() == 12
    assert "3 other jobs" in page.locator("table").first.inner_text()
    assert any("weighing the features" in line for line in said)


@pytest.mark.parametrize("jobs", [("tune-me",), ("tune-me", "other")])
def test_what_cannot_be_weighed_is_not_on_the_page(tmp_path: Path, jobs: tuple[str, ...]) -> None:
    page = ranking_report(ranked(tmp_path, jobs, "cost"))
    assert "Where to train tune-me" in page
    assert "What moves the model" not in page
    assert ("By group of features" in page) == (len(jobs) > 1)
    assert "for time" not in page
