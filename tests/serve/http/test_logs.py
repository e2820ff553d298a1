"""Logs: a job's own plain file, whatever stands in the address, the store or the file's place."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from httpx import Client

from trimtab.engines.run_folder import Intent, RunFolder
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
def asked(caller, store: Store, place: RunFolder) -> tuple[Client, str]:  # type: ignore[no-untyped-def]
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


def test_a_log_is_read_from_where_one_left_off(asked: tuple[Client, str], place: RunFolder) -> None:
    client, id = asked
    place.log.write_bytes("a märchen\n".encode())
    first = client.get(f"/v1/jobs/{id}/log", params={"limit": 4}).json()
    assert (first["text"], first["next"], first["over"]) == ("a m", 3, False)
    rest = client.get(f"/v1/jobs/{id}/log", params={"offset": first["next"]}).json()
    assert (rest["text"], rest["over"]) == ("ärchen\n", True)


def test_what_a_job_puts_in_its_logs_place_is_not_followed_and_holds_up_nobody(
    asked: tuple[Client, str], place: RunFolder, tmp_path: Path
) -> None:
    client, id = asked
    for put in (
        lambda: place.log.symlink_to(tmp_path / "secret"),
        lambda: place.log.symlink_to("/dev/zero"),
        lambda: os.mkfifo(place.log),
    ):
        put()
        answer = client.get(f"/v1/jobs/{id}/log", timeout=10)
        assert (answer.status_code, "not for you" in answer.text) == (404, False), put
        place.log.unlink()
    place.log.mkdir()
    assert client.get(f"/v1/jobs/{id}/log").status_code == 404


def test_no_name_of_a_run_or_job_leads_out_of_the_place_of_runs(
    asked: tuple[Client, str], store: Store, tmp_path: Path
) -> None:
    client, id = asked
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
