"""Measured training jobs: what is read, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.predict.jobs.training_data import DataSet, local_job, read_data, read_local, read_points

Rows = list[dict[str, Any]]


def test_points_keep_what_was_measured(data: DataSet, rows: Rows) -> None:
    points = data.points
    assert len(points) == len(rows)
    assert points.jobs == ("words", "dense", "pictures", "speech")
    assert points.price_date == "2026-11-15"
    assert np.isnan(points.cost[~points.ok]).all()
    ran = points.only(points.ok)
    price = ran.where.price_per_second
    assert ran.cost == pytest.approx(ran.seconds * price)
    assert ran.seconds == pytest.approx(ran.where.steps(ran.samples) * ran.step_seconds)


def test_a_job_and_all_others_are_the_whole(data: DataSet) -> None:
    points = data.points
    assert len(points.of("dense")) + len(points.without("dense")) == len(points)
    assert set(points.of("dense").job) == {"dense"}
    with pytest.raises(NotFoundError, match=r'"dens".*dense'):
        points.of("dens")


def test_a_missing_column_is_named(write: Callable[..., Path], rows: Rows, jobs: dict[str, Any]) -> None:
    folder = write(rows, jobs, without="cost")
    with pytest.raises(BadInputError, match="cost"):
        read_data(folder)


def test_two_price_dates_need_a_choice(write: Callable[..., Path], rows: Rows, jobs: dict[str, Any]) -> None:
    rows[3]["price_date"] = "2025-01-01"
    folder = write(rows, jobs)
    with pytest.raises(BadInputError, match=r"2025-01-01.*2026-11-15"):
        read_data(folder)
    assert len(read_data(folder, price_date="2026-11-15").points) == len(rows) - 1
    with pytest.raises(BadInputError, match="2020-02-02"):
        read_data(folder, price_date="2020-02-02")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("price_per_hour", 0),
        ("step_seconds", "nan"),
        ("seconds", ""),
        ("cpus", "many"),
        ("status", "tired"),
        ("job", ""),
    ],
)
def test_what_cannot_be_right_is_refused_with_its_line(
    write: Callable[..., Path], rows: Rows, jobs: dict[str, Any], column: str, value: object
) -> None:
    rows[0][column] = value
    with pytest.raises(BadInputError, match=f"line 2, column {column}: .*{value}"):
        read_data(write(rows, jobs))


def test_a_failed_row_has_the_price_and_length_of_its_kind(
    write: Callable[..., Path], rows: Rows, jobs: dict[str, Any]
) -> None:
    failed = next(row for row in rows if row["status"] == "out-of-memory")
    price = failed["price_per_hour"]
    failed |= {"price_per_hour": "", "samples": "", "price_date": ""}
    points = read_data(write(rows, jobs)).points
    assert points.where.price_per_hour[rows.index(failed)] == price
    assert points.samples[rows.index(failed)] == 1e6
    failed["shape"] = "enormous"
    with pytest.raises(BadInputError, match=r"price_per_hour.*enormous"):
        read_data(write(rows, jobs))


def test_a_point_counts_once(write: Callable[..., Path], rows: Rows, jobs: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=r"lines 2 and \d+"):
        read_data(write([*rows, rows[0]], jobs))


def test_files_that_are_not_there_or_empty(tmp_path: Path, folder: Path, write: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match=r"nowhere.csv"):
        read_points(tmp_path / "nowhere.csv")
    (tmp_path / "points.csv").write_text("job,shape\n")
    with pytest.raises(BadInputError, match="status"):
        read_points(tmp_path / "points.csv")


def test_a_job_without_a_local_run_is_refused(
    write: Callable[..., Path], rows: Rows, jobs: dict[str, Any]
) -> None:
    del jobs["words"]
    with pytest.raises(NotFoundError, match='"words"'):
        read_data(write(rows, jobs))


def test_facts_may_be_unknown_and_runs_are_kept(data: DataSet) -> None:
    job = data.job("pictures")
    assert np.isnan(job.facts.output_size)
    assert job.facts.layer_kinds == {"Linear": 2.0, "Conv2d": 2.0}
    assert [(run.batch, run.workers) for run in job.runs] == [(16, 1), (16, 2), (64, 1), (64, 2)]
    assert (job.typical.batch, job.typical.workers) == (64, 2)
    with pytest.raises(NotFoundError, match="picture books"):
        data.job("picture books")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"runs": []}, "here: runs"),
        ({"facts": [1]}, "here: facts"),
        ({"facts": {"layers": "four"}}, r"here: facts\.layers is .?four"),
    ],
)
def test_jobs_that_cannot_be_right(jobs: dict[str, Any], change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        local_job("here", "words", {**jobs["words"], **change})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"step_seconds": None}, r"here: runs\[0\]\.step_seconds"),
        ({"cpu_seconds_step": float("nan")}, "cpu_seconds_step is nan"),
        ({"batch": 0}, "batch is 0"),
        ({"series": {"cpu": [1.0]}}, "series.memory"),
    ],
)
def test_runs_that_cannot_be_right(jobs: dict[str, Any], change: dict[str, Any], named: str) -> None:
    jobs["words"]["runs"][0] |= change
    with pytest.raises(BadInputError, match=named):
        local_job("here", "words", jobs["words"])


def test_files_that_are_no_local_runs(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = tmp_path / "local.json"
    with pytest.raises(BadInputError, match=r"local.json"):
        read_local(path)
    for text in ("{", "[]", "{}", '{"jobs": {}}'):
        path.write_text(text)
        with pytest.raises(BadInputError, match=r"local.json"):
            read_local(path)


def test_a_series_with_a_gap_is_refused(
    write: Callable[..., Path], rows: list[dict[str, Any]], jobs: dict[str, Any]
) -> None:
    jobs["words"]["runs"][0]["series"]["memory"][3] = None
    with pytest.raises(BadInputError, match=r"jobs\.words\.runs\[0\]\.series\.memory\[3\]"):
        read_data(write(rows, jobs))
