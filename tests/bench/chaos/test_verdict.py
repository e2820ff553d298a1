"""The checker finds what is lost, doubled or told wrongly."""

from pathlib import Path
from typing import Any

from trimtab_bench.chaos.clients import compare_streams
from trimtab_bench.chaos.verdict import ZERO, StoredJob, check_jobs, failures, find_tracebacks

from trimtab.store import JobState


def line(job: str, what: str) -> dict[str, Any]:
    return {"job": job, "what": what, "pid": 1, "run": "2", "time": 3.0}


def ran(job: str) -> list[dict[str, Any]]:
    return [line(job, "begin"), line(job, "end")]


def test_a_job_that_was_restarted_and_ended_once_is_well() -> None:
    records = [line("a", "begin"), *ran("a")]
    figures, evidence = check_jobs({"1": "a"}, [StoredJob("1", "a", JobState.ENDED)], records)
    assert figures["acknowledged"] == figures["ended"] == 1
    assert not any(evidence.values())


def test_missing_unfinished_and_unworked_jobs_are_lost() -> None:
    acknowledged = {"1": "a", "2": "b", "3": "c", "4": "d"}
    stored = [StoredJob("2", "b", JobState.RUNNING), StoredJob("3", "c", JobState.ENDED)]
    stored.append(StoredJob("4", "d", JobState.FAILED, "status 1"))
    figures, evidence = check_jobs(acknowledged, stored, [*ran("a"), line("c", "begin")])
    assert (figures["ended"], figures["lost"], figures["failed"]) == (1, 3, 1)
    assert [*evidence["lost"]] == ["a", "b", "c"]
    assert [*evidence["failed"]] == ["d"]


def test_doubles_are_found() -> None:
    stored = [StoredJob("1", "a", JobState.ENDED), StoredJob("2", "a", JobState.ENDED)]
    records = [*ran("a"), line("a", "concurrent"), *ran("a")]
    figures, evidence = check_jobs({"1": "a", "2": "a"}, stored, records)
    assert (figures["completed_twice"], figures["concurrent"], figures["submitted_twice"]) == (1, 1, 1)
    assert evidence["completed_twice"] == evidence["concurrent"] == evidence["submitted_twice"] == ["a"]


def test_a_stream_must_get_every_event_once_and_in_order() -> None:
    assert compare_streams([[1, 2, 4]], [1, 2, 4])["events_missed"] == 0
    wrong = compare_streams([[1, 4], [1, 2, 2, 4], [1, 4, 2], [1, 2, 3, 4]], [1, 2, 4])
    assert (wrong["events_missed"], wrong["events_repeated"]) == (1, 3)
    assert wrong["missed_ids"] == [2]


def test_tracebacks_are_counted_with_their_text(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("12:00:00 well\nTraceback (most recent call last):\n  File x\nOSError: full\n")
    count, (text,) = find_tracebacks([log])
    assert count == 1
    assert text.startswith(str(log))
    assert "OSError: full" in text


def test_a_run_passes_only_with_all_zeros_and_some_jobs() -> None:
    well = {**dict.fromkeys(ZERO, 0), "acknowledged": 5, "ended": 5, "managed": 9}
    assert not failures(well)
    assert failures(well | {"acknowledged": 0, "ended": 0})
    assert failures(well | {"ended": 4})
    assert failures(well | {"managed": 0})
    for name in ZERO:
        assert failures(well | {name: 1})
