"""A trace of one's own: what is told is kept, what is wrong is refused with its line."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule import Checkpoint, JobData, Priority, Worker
from trimtab.schedule.traces.registry import read_trace


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_that_can_be_told(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "job,submit_s,tenant,application,priority,min_gpus,max_gpus,worker_gpus,accelerators,cpus,memory,work,"
        "speed,speed_A100-40GB,deadline_s,hard,budget,data_zone,data_bytes,checkpoint_s,restart_s,interval_s\n"
        "a,10,ads,bert,high,2,8,2,A100|v100,4,16GiB,1e6,5,20,3600,yes,$12.50,aws/us-east-1/a,1TB,20,40,600\n",
    )
    trace = read_trace(path)
    (job,) = trace.jobs
    assert trace.name == "mine"
    assert (job.id, job.submitted, job.application, job.budget) == ("a", 10.0, "bert", 12.5)
    assert (job.workload.tenant, job.workload.priority, job.workload.deadline) == ("ads", Priority.HIGH, 3600)
    assert job.worker == Worker(2.0, 4.0, 16 * 2**30, ("a100", "v100"))
    assert (job.least, job.most, job.hard, job.elastic) == (1, 4, True, True)
    assert (job.work, job.speeds) == (1e6, {"": 5.0, "a100": 20.0})
    assert job.data == JobData("aws/us-east-1/a", 1e12)
    assert job.checkpoint == Checkpoint(seconds=20.0, restart=40.0, interval=600.0)


def test_what_is_not_told_is_usual(tmp_path: Path) -> None:
    path = write(tmp_path, "job,submit_s,tenant,work,deadline_s\na,0,,,\n\nb,0,x,7,60\n")
    first, second = read_trace(path).jobs
    assert (first.workload.tenant, first.work, first.workload.deadline) == ("default", None, None)
    assert (first.worker, first.least, first.checkpoint, first.data) == (Worker(), 1, None, None)
    assert (second.workload.tenant, second.work) == ("x", 7.0)


def test_durations_count_at_the_smallest_gang(tmp_path: Path) -> None:
    path = write(tmp_path, "job,submit_s,min_gpus,max_gpus,duration_s\na,0,2,8,100\n")
    (job,) = read_trace(path).jobs
    assert (job.work, job.speeds) == (200.0, {"": 1.0})


@pytest.mark.parametrize(("gpus", "each"), [("0.25", 0.25), ("0", 0.0), ("4", 1.0)])
def test_shares_and_jobs_without_accelerators(tmp_path: Path, gpus: str, each: float) -> None:
    (job,) = read_trace(write(tmp_path, f"job,submit_s,gpus\na,0,{gpus}\n")).jobs
    assert job.worker.gpus == each
    assert job.least == (4 if gpus == "4" else 1)


def test_compressed_or_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfjob,submit_s\na,0\n"))
    assert [job.id for job in read_trace(path).jobs] == ["a"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("job,submit_s\na,5\nb,4\n", ["mine.csv:3: submit_s", "5", "4"]),
        ("job,submit_s\na,-5\n", ["mine.csv:2: submit_s", "-5"]),
        ("job,submit_s\na,\n", ["mine.csv:2: submit_s", "empty"]),
        ("job,submit_s\na,soon\n", ["mine.csv:2: submit_s", '"soon"']),
        ("job,submit_s\na,nan\n", ["mine.csv:2: submit_s", "nan"]),
        ("job,submit_s\n,1\n", ["mine.csv:2: job"]),
        ("job,submit_s\na,1\na,2\n", ["mine.csv:3: job", '"a"']),
        ("job,submit_s\na,1,2\n", ["mine.csv:2:", "3 cells", "2 columns"]),
        ("job,submit_s,duration_s\na,1,-3\n", ["mine.csv:2: duration_s", "-3"]),
        ("job,submit_s,duration_s\na,1,0\n", ["mine.csv:2: duration_s", "0"]),
        ("job,submit_s,duration_s,work\na,1,1,1\n", ["duration_s", "work"]),
        ("job,submit_s,speed\na,1,1\n", ["speed", "work"]),
        ("job,submit_s,gpu\na,1,1\n", ['"gpu"', "did you mean gpus"]),
        ("job,submit_s,gpus\na,1,1.5\n", ["mine.csv:2:", "1.5 accelerators", "1"]),
        ("job,submit_s,gpus,worker_gpus\na,1,6,4\n", ["mine.csv:2:", "6 accelerators", "4"]),
        ("job,submit_s,min_gpus\na,1,1\n", ["min_gpus", "max_gpus"]),
        ("job,submit_s,min_gpus,max_gpus\na,1,4,2\n", ["mine.csv:2: min_gpus", "4", "max_gpus", "2"]),
        ("job,submit_s,min_gpus,max_gpus\na,1,0,2\n", ["mine.csv:2: min_gpus", "0"]),
        (
            "job,submit_s,priority\na,1,much\n",
            ["mine.csv:2: priority", '"much"', "low, normal, high, urgent"],
        ),
        ("job,submit_s,hard\na,1,maybe\n", ["mine.csv:2: hard", '"maybe"', "true or false"]),
        ("job,submit_s,memory\na,1,lots\n", ["mine.csv:2: memory"]),
        ("job,submit_s,submit_s\na,1,2\n", ['"submit_s"']),
        ("job,submit_s\n", []),
        ("", []),
        ("name,when\na,1\n", ["name, when", "job and submit_s"]),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_value(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(BadInputError, match=r"mine\.csv") as refused:
        read_trace(write(tmp_path, text))
    assert all(part in str(refused.value) for part in parts)
    assert "\n" not in str(refused.value)


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    damaged, binary = tmp_path / "damaged.csv.gz", tmp_path / "binary.csv"
    damaged.write_bytes(gzip.compress(b"job,submit_s\n" * 100)[:-9])
    binary.write_bytes(bytes(range(128, 256)))
    with pytest.raises(NotFoundError, match=r"nothing\.csv"):
        read_trace(tmp_path / "nothing.csv")
    for path in (damaged, binary, tmp_path):
        with pytest.raises(BadInputError, match=re.escape(str(path))):
            read_trace(path)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_garbage_is_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage.csv"
    path.write_bytes(b"job,submit_s,gpus,priority,memory,hard\n" + content)
    message = ""
    try:
        read_trace(path)
    except BadInputError as refused:
        message = str(refused)
    assert "\n" not in message
