"""Reading local runs, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.predict.jobs.training import DataSet, local_job, read_data, read_local


def test_facts_may_be_unknown_and_runs_are_kept(data: DataSet) -> None:
    job = data.job("pictures")
    assert np.isnan(job.facts.output_size)
    assert job.facts.layer_kinds == {"Linear": 2.0, "Conv2d": 2.0}
    assert [(run.batch, run.workers) for run in job.runs] == [(16, 1), (16, 2), (64, 1), (64, 2)]
    assert (job.typical.batch, job.typical.workers) == (64, 2)
    with pytest.raises(NotFoundError, match="no local run of"):
        data.job("picture books")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runs": []}, "there are no runs"),
        ({"facts": [1]}, "facts are values by name"),
        ({"facts": {"layers": "four"}}, "layers is four; it must be a number"),
    ],
)
def test_jobs_that_cannot_be_right(jobs: dict[str, Any], change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        local_job("here", "words", {**jobs["words"], **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step_seconds": None}, "run 1: step_seconds is None; it must be a number"),
        ({"cpu_seconds_step": float("nan")}, "cpu_seconds_step is nan"),
        ({"batch": 0}, "batch is 0; it must be above zero"),
        ({"series": {"cpu": [1.0]}}, "series are lists of cpu, memory, received, sent"),
    ],
)
def test_runs_that_cannot_be_right(jobs: dict[str, Any], change: dict[str, Any], words: str) -> None:
    jobs["words"]["runs"][0] |= change
    with pytest.raises(BadInputError, match=words):
        local_job("here", "words", jobs["words"])


def test_files_that_are_no_local_runs(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = tmp_path / "local.json"
    with pytest.raises(BadInputError, match="there is no file"):
        read_local(path)
    path.write_text("{")
    with pytest.raises(BadInputError, match="cannot be read"):
        read_local(path)
    path.write_text('{"jobs": {}}')
    with pytest.raises(BadInputError, match="has no jobs"):
        read_local(path)


def test_a_series_with_a_gap_is_refused(
    write: Callable[..., Path], rows: list[dict[str, Any]], jobs: dict[str, Any]
) -> None:
    jobs["words"]["runs"][0]["series"]["memory"][3] = None
    with pytest.raises(BadInputError, match="the series memory has something in it that is no number"):
        read_data(write(rows, jobs))
