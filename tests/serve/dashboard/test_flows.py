"""What people do with it, from a profile's file to the outcome of a job."""

import json
from pathlib import Path
from typing import Any

from dashboard_house import faults, profile_of, until

from trimtab.core import to_plain
from trimtab.store import JobState


def test_from_a_profile_to_a_job_its_log_and_its_outcome(house: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(to_plain(profile_of("mine", "profile-mine"))))
    with house.visitor() as page:
        page.goto(f"{house.url}/recommend")
        page.wait_for_function("window.did_handshake")
        page.get_by_label("Or upload a profile's file").set_input_files(file)
        page.get_by_text("The profile of mine is kept.").wait_for()
        page.get_by_label("Accelerators, like A100, T4").fill("T4")
        page.get_by_role("button", name="Recommend").click()
        page.get_by_role("heading", name="Why", exact=True).wait_for()
        page.wait_for_function("document.querySelector('.js-plotly-plot .main-svg') !== null")
        assert page.get_by_text("one step takes").count() == 1
        assert faults(page) == []
        page.get_by_label("Name", exact=True).fill("from-the-page")
        page.get_by_label("Command").fill("sh -c 'echo it is done'")
        page.get_by_role("button", name="Launch", exact=True).click()
        page.get_by_role("link", name="Job from-the-page").click()
        page.get_by_text("it is done").last.wait_for()
        page.locator("[data-state=ended]").wait_for()
        assert faults(page) == []
        page.get_by_role("link", name="the decision").click()
        page.get_by_role("heading", name="Outcome").wait_for()
        page.locator("li", has_text="time ").first.wait_for()
        assert faults(page) == []
    assert house.store.profiles.get("profile-mine").workload.name == "mine"
    assert house.problems == []


def test_what_is_wrong_with_a_file_or_a_wish_is_said_in_a_sentence(house: Any, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"a": 1}')
    with house.visitor() as page:
        page.goto(f"{house.url}/recommend")
        page.wait_for_function("window.did_handshake")
        page.get_by_label("Or upload a profile's file").set_input_files(file)
        page.get_by_text('"other.json" is JSON but not a profile').wait_for()
        page.get_by_label("Deadline, like 6h").fill("soon")
        page.get_by_role("button", name="Recommend").click()
        page.get_by_text('"soon" is not a duration').wait_for()
    assert house.problems == []


def test_a_job_that_runs_is_cancelled_and_the_page_follows(house: Any) -> None:
    record = next(item for item in house.store.jobs.active() if item.name == "goes-on")
    with house.visitor() as page, house.visitor() as other:
        other.goto(f"{house.url}/jobs")
        other.locator("tr", has_text="goes-on").locator("[data-state=running]").wait_for()
        page.goto(f"{house.url}/jobs/{record.id}")
        page.wait_for_function("window.did_handshake")
        page.get_by_role("button", name="Cancel this job").click()
        page.get_by_role("button", name="Press again to cancel it").click()
        page.locator("[data-state=cancelled]").wait_for()
        other.locator("tr", has_text="goes-on").locator("[data-state=cancelled]").wait_for()
    assert until(lambda: house.store.jobs.get(record.id).state, "its state") is JobState.CANCELLED
    assert house.problems == []


def test_an_outcome_that_is_typed_in_joins_its_decision(house: Any) -> None:
    made = next(item for item in house.store.ledger.list(20) if item.kind == "recommend")
    before = len(house.store.ledger.outcomes(made.id))
    with house.visitor() as page:
        page.goto(f"{house.url}/decisions/{made.id}")
        page.wait_for_function("window.did_handshake")
        page.get_by_label("It took, like 3h40m").fill("2h")
        page.get_by_role("button", name="Record outcome").click()
        page.get_by_text("The outcome is recorded.").wait_for()
        page.get_by_text("time 2h; expected").wait_for()
    assert len(house.store.ledger.outcomes(made.id)) == before + 1
    assert house.problems == []
