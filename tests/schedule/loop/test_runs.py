"""Asking a run to save: by signal or by command, and what is said where that goes wrong."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_texts import parse_jobs

from trimtab.core import BadInputError, Launch, TrimtabError
from trimtab.schedule import JobFolder
from trimtab.schedule.loop.runs import StoppingRun, StoppingRuns
from trimtab.store import JobRecord


def stopped(engine: Any, text: str, folder: Path, **settings: float) -> tuple[JobRecord, StoppingRun]:
    """A run of a job with this checkpoint, after it was stopped."""
    (job,) = parse_jobs(f"name: a\ncommand: 'true'\nenvironment: {{A: b}}\n{text}", "job.yaml")
    job = type(job)(job.job, str(folder), job.environment)
    record = job.named("a", 0.0).record()
    JobFolder.of("a").make()
    engine.launch(Launch(record.key, job.job.workload, (("n1", 1),), 1.0, 1.0))
    stops = StoppingRuns(engine, **settings)
    stops.begin(record, f"run-{record.key}", job)
    deadline = time.monotonic() + 20
    while not stops.over():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert stops.over() == [record.key]
    stop = stops.take(record.key)
    assert stop is not None
    assert record.key not in stops
    return record, stop


def test_a_checkpoint_command_runs_in_the_jobs_folder_with_its_variables(
    memory_engine: Callable[..., Any], tmp_path: Path
) -> None:
    save = "checkpoint: {command: [sh, -c, 'echo $PWD $A $TRIMTAB_JOB > $TRIMTAB_CHECKPOINT/state']}"
    engine = memory_engine()
    record, stop = stopped(engine, save, tmp_path)
    assert (stop.failure, stop.error) == ("", "")
    assert (JobFolder.of("a").checkpoint / "state").read_text() == f"{tmp_path} b a\n"
    assert record.key not in engine.running().values()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("[sh, -c, 'exit 3']", "its checkpoint command failed with status 3"),
        ("[no-such-command-here]", "its checkpoint command failed with status 127"),
        ("[sleep, '30']", "its checkpoint command took more than 200 ms"),
    ],
)
def test_a_checkpoint_command_that_goes_wrong_is_named_and_the_run_is_stopped(
    memory_engine: Callable[..., Any], tmp_path: Path, command: str, sentence: str
) -> None:
    engine = memory_engine()
    _, stop = stopped(engine, f"checkpoint: {{command: {command}, seconds: 0.1}}", tmp_path)
    assert stop.failure.startswith(sentence)
    assert engine.running() == {}


def test_an_engine_that_cannot_signal_stops_all_the_same(
    memory_engine: Callable[..., Any], tmp_path: Path
) -> None:
    engine = memory_engine()

    def refuse(run_id: str, name: str) -> None:
        raise BadInputError("signals do not reach it")

    engine.signal = refuse
    _, stop = stopped(engine, "checkpoint: USR1", tmp_path)
    assert "signals do not reach it" in stop.failure
    assert engine.running() == {}


def test_a_run_that_cannot_be_stopped_is_said_so(memory_engine: Callable[..., Any], tmp_path: Path) -> None:
    engine = memory_engine()

    def fail(run_id: str, grace: float) -> None:
        raise TrimtabError("it cannot be killed")

    engine.stop = fail
    _, stop = stopped(engine, "", tmp_path)
    assert stop.error == "it cannot be killed"
