"""The page, in a real browser."""

from collections.abc import Callable

from browser import Browser, traces_drawn

from trimtab.core import Profile
from trimtab.pipelines import Pipeline, pipeline_report, reserved_ways, size


def page_of(pipeline: Callable[..., Pipeline], used: Callable[..., Profile]) -> str:
    read = pipeline("stages: [{name: load, command: a}, {name: '<i>train', command: a, after: load}]")
    profiles = {"load": used([0.1] * 5, [2.0**28] * 5), "<i>train": used([2.0] * 50, [2.0**33] * 50)}
    sized = size(read, profiles)
    return pipeline_report("digits", sized, reserved_ways(sized))


def test_a_name_with_markup_in_it_is_shown_not_run(
    pipeline: Callable[..., Pipeline], used: Callable[..., Profile]
) -> None:
    page = page_of(pipeline, used)
    assert "<i>" not in page
    assert "none → 10Gi" in page


def test_the_page_draws_every_stage_with_its_request(
    pipeline: Callable[..., Pipeline], used: Callable[..., Profile], browser: Browser
) -> None:
    page = browser.show(page_of(pipeline, used))
    assert browser.problems == []
    assert list(traces_drawn(page)) == [4, 4]
