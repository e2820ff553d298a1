"""What a session keeps: whole after every trial, and only for what it was made for."""

from dataclasses import replace
from pathlib import Path

import pytest
from measured_jobs import write_spec

from trimtab.collect import read_spec
from trimtab.core import BadInputError, StorageError
from trimtab.tune.job_space import JobSpace
from trimtab.tune.state import Identity, open_state
from trimtab.tune.trials import Trial, TrialWindow

EFFORT = TrialWindow(1.0, 10.0)
TRIAL = Trial("1 × wide, batch 32", "ok", 1.0, 5.0, 0.001, 1e9, 40, 0.02, 0.01, None)


@pytest.fixture
def space(tmp_path: Path) -> JobSpace:
    return JobSpace.of(read_spec(write_spec(tmp_path)), "tune-me", lambda setup: True)


def identity(space: JobSpace, **changes: str) -> Identity:
    told = {"objective": "cost", "where": "this machine", "price_date": "2026-11-15", **changes}
    return Identity.of_job(space, told["objective"], told["where"], EFFORT, told["price_date"])


def test_trials_are_there_again(space: JobSpace) -> None:
    with open_state(identity(space)) as state:
        assert state.trials == ()
        state.add(TRIAL)
        state.add(replace(TRIAL, status="failed", step_seconds=None, reason="it burnt"))
    with open_state(identity(space)) as again:
        assert [trial.status for trial in again.trials] == ["ok", "failed"]
        assert again.trials[0] == TRIAL
        assert again.path == identity(space).file


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"objective": "time"}, "is the state of the objective cost, not time"),
        ({"where": "local://"}, "is the state of trials on this machine, not local://"),
        ({"price_date": "2026-12-24"}, "is the state of another SPEC"),
    ],
)
def test_a_state_of_something_else_is_refused(
    space: JobSpace, tmp_path: Path, changes: dict[str, str], sentence: str
) -> None:
    path = tmp_path / "state.json"
    with open_state(identity(space), path) as state:
        state.add(TRIAL)
    with (
        pytest.raises(BadInputError, match=sentence),
        open_state(identity(space, **changes), path),
    ):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b'{"identity": {}}', b"\xff\xfe"])
def test_a_file_that_is_no_state_is_refused_and_left_alone(
    space: JobSpace, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with (
        pytest.raises(BadInputError, match="--state"),
        open_state(identity(space), path),
    ):
        pass
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_written_is_said_so(space: JobSpace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError), open_state(identity(space), tmp_path / "file" / "state.json"):
        pass
