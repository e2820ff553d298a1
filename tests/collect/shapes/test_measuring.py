"""Measuring training jobs under every shape: turns, points, and runs that go on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.collect.functions.conftest import group_folders
from trimtab.collect import Spec, TrainingGang, collect_shapes, read_spec
from trimtab.collect.shapes.measuring import measure
from trimtab.collect.shapes.points import Point, PointFile
from trimtab.core import BadInputError, StorageError
from trimtab.kernel import find_hierarchy
from trimtab.observe import HostSpeed

from .conftest import LARGE, SMALL, workers_in

COLUMNS = tuple(field.name for field in fields(Point))
MakeSpec = Callable[..., Spec]


def measured(spec: Spec, workers: int = 1) -> dict[str, Point]:
    """The points of the only job, by shape; nothing may be left running."""
    points = measure(TrainingGang(spec.jobs[0], 10, workers), spec.shapes, spec, HostSpeed())
    assert group_folders() == []
    assert workers_in(spec.jobs[0].folder) == []
    return {point.shape: point for point in points}


def test_half_the_cpu_takes_twice_as_long(make_spec: MakeSpec) -> None:
    found = measured(make_spec())
    small, large = found["small"], found["large"]
    assert (small.status, large.status) == ("ok", "ok")
    assert small.step_seconds == pytest.approx(0.05, rel=0.35)
    assert small.step_seconds / large.step_seconds == pytest.approx(2.0, rel=0.35)
    assert small.cpu_seconds_step == pytest.approx(0.01, rel=0.4)
    assert small.throttled_share > large.throttled_share > 0.2
    assert small.seconds == pytest.approx(200 * small.step_seconds)
    assert small.cost == pytest.approx(small.seconds / 3600 * SMALL.price_per_hour)
    assert small.trial_seconds >= 1.0
    assert small.attempts >= 2


def test_two_machines_halve_the_steps_and_double_the_price(make_spec: MakeSpec) -> None:
    large = measured(make_spec(), workers=2)["large"]
    assert large.seconds == pytest.approx(100 * large.step_seconds)
    assert large.cost == pytest.approx(2 * large.seconds / 3600 * LARGE.price_per_hour)


def test_what_grows_beyond_the_memory_is_noted_so(make_spec: MakeSpec) -> None:
    found = measured(make_spec("greedy"))
    assert found["small"].status == "out-of-memory"
    assert found["small"].step_seconds is None
    assert found["small"].cost is None


@pytest.mark.parametrize(
    ("how", "status", "sentence"),
    [
        ("silent", "no-steps", ""),
        ("diverges", "diverged", ""),
        ("dies", "failed", "the disk is on fire"),
        ("ends", "failed", "ended by itself after 7 steps; give it more epochs"),
    ],
)
def test_what_goes_wrong_is_a_status(
    make_spec: MakeSpec, caplog: pytest.LogCaptureFixture, how: str, status: str, sentence: str
) -> None:
    found = measured(make_spec(how), workers=2 if how == "dies" else 1)
    assert {point.status for point in found.values()} == {status}
    assert sentence in caplog.text


def test_a_command_that_cannot_be_started_is_a_failure_with_a_reason(
    make_spec: MakeSpec, caplog: pytest.LogCaptureFixture
) -> None:
    from dataclasses import replace

    spec = make_spec()
    spec = replace(spec, jobs=(replace(spec.jobs[0], command="no-such-program {batch}"),))
    assert {point.status for point in measured(spec).values()} == {"failed"}
    assert '"no-such-program" cannot be started' in caplog.text


MakeSpec = Callable[..., Spec]

SPEC = """
jobs:
  job: {command: "%s script.py {batch} well", samples: 1000, epochs: 2, batches: [10, 20]}
shapes:
  small: {cpus: 0.2, memory: 64MiB, price_per_hour: 0.01}
price_date: 2026-11-15
window: 0.5s
"""


def test_every_point_and_the_local_runs_are_kept_and_done_once(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec, path = make_spec(batches=(10, 20)), tmp_path / "points.csv"
    spec = replace(spec, window=0.5)
    progress = list[tuple[int, int, str]]()
    assert collect_shapes(spec, path, lambda *now: progress.append(now)) == 4
    assert progress[0] == (0, 4, "job, local run")
    assert progress[-1] == (4, 4, "done")
    head, *rows = path.read_text().splitlines()
    assert tuple(head.split(",")) == COLUMNS
    assert len(rows) == 4
    local = json.loads((tmp_path / "points.local.json").read_text())["jobs"]["job"]
    assert {run["batch"] for run in local["runs"]} == {10, 20}
    first = local["runs"][0]
    assert first["cpu_seconds_step"] == pytest.approx(0.01, rel=0.4)
    assert len(first["series"]["cpu"]) == len(first["series"]["sent"]) >= 2
    assert collect_shapes(spec, path) == 0
    with PointFile(path).alone(), pytest.raises(StorageError, match=re.escape(str(path))):
        collect_shapes(spec, path)
    cut = path.read_text()[:-20]
    path.write_text(cut)  # as a kill in the middle of a line leaves it
    assert collect_shapes(spec, path) == 1
    assert len(path.read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda spec: replace(spec, price_date="2026-12-01"), "has prices of 2026-11-15"),
        (lambda spec: replace(spec, shapes=(replace(spec.shapes[0], cpus=0.3),)), "another shape small"),
        (lambda spec: replace(spec, jobs=(replace(spec.jobs[0], epochs=9.0),)), "another length of job"),
    ],
)
def test_what_was_measured_otherwise_is_not_mixed(
    make_spec: MakeSpec, tmp_path: Path, change: Callable[[Spec], Spec], sentence: str
) -> None:
    path = tmp_path / "points.csv"
    row = dict.fromkeys(COLUMNS, "") | {
        "job": "job", "shape": "small", "cpus": "0.2", "memory_bytes": str(64 * 2**20), "workers": "1",
        "batch": "10", "status": "ok", "samples": "2000", "price_date": "2026-11-15",
    }  # fmt: skip
    path.write_text(",".join(COLUMNS) + "\n" + ",".join(row.values()) + "\n")
    spec = make_spec()
    assert PointFile(path).finished(spec) == {("job", "small", 10, 1)}
    with pytest.raises(BadInputError, match=sentence):
        PointFile(path).finished(change(spec))
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BadInputError, match=re.escape(str(path))):
        PointFile(path).finished(spec)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_kill_leaves_no_worker_and_the_next_start_no_group(
    make_spec: MakeSpec, tmp_path: Path, number: int
) -> None:
    make_spec()
    (tmp_path / "spec.yaml").write_text(SPEC % sys.executable)
    trimtab = str(Path(sys.executable).with_name("trimtab"))
    command = [trimtab, "collect", "spec.yaml", "-o", "points.csv"]
    collecting = subprocess.Popen(
        command,
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
    )
    try:
        _until(lambda: (tmp_path / "points.local.json").exists())
        _until(lambda: set(workers_in(tmp_path)) - {collecting.pid})
    finally:
        os.killpg(collecting.pid, number)
        collecting.wait(20)
    _until(lambda: not workers_in(tmp_path))
    spec = read_spec(tmp_path / "spec.yaml")
    assert collect_shapes(spec, tmp_path / "points.csv") >= 1
    assert len((tmp_path / "points.csv").read_text().splitlines()) == 3
    hierarchy = find_hierarchy()
    assert hierarchy is not None
    left = [
        path for folder in hierarchy.folders.values() for path in folder.glob(f"trimtab-*-{collecting.pid}-*")
    ]
    assert left == []


def _until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
