"""Logs: a job's own plain file, whatever stands in the address, the store or the file's place."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from httpx import Client

from trimtab.engines.run_folder import Intent, RunFolder
from trimtab.kernel import drop_head
from trimtab.store import JobState, Store

RUN = "0123456789ab"


@pytest.fixture
def place(tmp_path: Path) -> RunFolder:
    """Where the local engine keeps a run of that id; beside it, something that is nobody's to read."""
    (tmp_path / "secret").write_text("not for you")
    folder = tmp_path / "engines" / "local" / RUN
    folder.parent.mkdir(parents=True)
    run = RunFolder(folder)
    run.make(Intent("key", "train", 1.0, 1))
    return run


@pytest.fixture
def calls(caller, store: Store, place: RunFolder) -> tuple[Client, str]:  # type: ignore[no-untyped-def]
    """A user of a tenant with a job, which has run."""
    client = caller("acme", "user")
    id = client.post("/v1/jobs", json={"jobs": [{"name": "train", "command": "true"}]}).json()["items"][0][
        "id"
    ]
    ran(store, id, RUN)
    return client, id


def ran(store: Store, id: str, run: str) -> None:
    """Have the job run under that id, and end."""
    record = store.jobs.get(id)
    store.jobs.change(record, JobState.ENDED, replace(record.run, engine="local://", run_id=run))


def test_a_log_is_read_from_where_one_left_off(calls: tuple[Client, str], place: RunFolder) -> None:
    client, id = calls
    place.log.write_bytes("a märchen\n".encode())
    first = client.get(f"/v1/jobs/{id}/log", params={"limit": 4}).json()
    assert (first["text"], first["next"], first["over"]) == ("a m", 3, False)
    rest = client.get(f"/v1/jobs/{id}/log", params={"offset": first["next"]}).json()
    assert (rest["text"], rest["over"]) == ("ärchen\n", True)


def test_a_log_whose_begin_was_dropped_is_read_from_what_is_kept(
    calls: tuple[Client, str], place: RunFolder
) -> None:
    client, id = calls
    with place.log.open("wb") as file:
        file.write(b"x" * 200_000)
        file.flush()
        assert drop_head(file.fileno(), 65_536) == 200_000
    first = client.get(f"/v1/jobs/{id}/log", params={"offset": 10}).json()
    assert 200_000 - 2 * 65_536 <= first["offset"] <= 200_000 - 65_536
    assert first["text"] == "x" * (200_000 - first["offset"])
    assert (first["next"], first["over"]) == (200_000, True)


def test_a_log_that_has_begun_anew_is_read_from_its_begin(
    calls: tuple[Client, str], place: RunFolder
) -> None:
    client, id = calls
    place.log.write_text("new\n")
    answer = client.get(f"/v1/jobs/{id}/log", params={"offset": 10}).json()
    assert (answer["offset"], answer["text"], answer["next"]) == (0, "new\n", 4)


def test_what_a_job_puts_in_its_logs_place_is_not_followed_and_holds_up_nobody(
    calls: tuple[Client, str], place: RunFolder, tmp_path: Path
) -> None:
    client, id = calls
    for put in (
        lambda: place.log.symlink_to(tmp_path / "secret"),
        lambda: place.log.symlink_to("/dev/zero"),
        lambda: place.log.hardlink_to(tmp_path / "secret"),
        lambda: os.mkfifo(place.log),
    ):
        put()
        answer = client.get(f"/v1/jobs/{id}/log", timeout=10)
        assert (answer.status_code, "not for you" in answer.text) == (404, False), put
        place.log.unlink()
    place.log.mkdir()
    assert client.get(f"/v1/jobs/{id}/log").status_code == 404


def test_no_name_of_a_run_or_job_leads_out_of_the_place_of_runs(
    calls: tuple[Client, str], store: Store, tmp_path: Path
) -> None:
    client, id = calls
    elsewhere = tmp_path / "output.log"
    elsewhere.write_text("not for you")
    for run in ("..", "../..", "../../secret", str(tmp_path), f"../local/{RUN}", "."):
        made = client.post("/v1/jobs", json={"jobs": [{"name": "train", "command": "true"}]})
        other = made.json()["items"][0]["id"]
        ran(store, other, run)
        answer = client.get(f"/v1/jobs/{other}/log")
        assert (answer.status_code, "not for you" in answer.text) == (404, False), run
    for name in ("%00", "..%2f..%2fsecret", "%2e%2e", "%2fetc%2fpasswd", f"{id}%00", f"{id}%2f..", "%ff"):
        answer = client.get(f"/v1/jobs/{name}/log")
        assert answer.status_code == 404, name
        assert answer.headers["content-type"] == "application/problem+json"
