"""Jobs over time."""

from dataclasses import replace

import pytest

from trimtab.serve.dashboard.pages.jobs import spans, timeline
from trimtab.store import JobRecord, JobRun, JobState, Outlook

RECORD = JobRecord("1", 100.0, "a<b>", "red", "app", JobState.WAITING, {})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"outlook": Outlook("full", 300.0)}, (("waited", 100.0, 200.0), ("believed", 200.0, 300.0))),
        ({}, (("waited", 100.0, 200.0),)),
        (
            {"state": JobState.RUNNING, "run": JobRun(since=150.0)},
            (("waited", 100.0, 150.0), ("running", 150.0, 200.0)),
        ),
        (
            {"state": JobState.ENDED, "run": JobRun(since=150.0, ended=180.0)},
            (("waited", 100.0, 150.0), ("ended", 150.0, 180.0)),
        ),
        (
            {"state": JobState.FAILED, "run": JobRun(ended=180.0, seconds=20.0)},
            (("waited", 100.0, 160.0), ("failed", 160.0, 180.0)),
        ),
        ({"state": JobState.CANCELLED, "run": JobRun(ended=120.0)}, (("waited", 100.0, 120.0),)),
    ],
)
def test_a_job_waits_and_then_runs(
    changes: dict[str, object], expected: tuple[tuple[str, float, float], ...]
) -> None:
    assert spans(replace(RECORD, **changes), now=200.0) == expected  # type: ignore[arg-type]


def test_names_are_text_in_a_chart() -> None:
    (trace,) = timeline([RECORD], now=200.0)["data"]
    assert trace["y"] == ["a&lt;b&gt; 1"]
