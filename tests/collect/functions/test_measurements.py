"""Rows of measurements, and the file that keeps them."""

import contextlib
import json
import resource
import signal
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from trimtab.collect.functions.applications import Application, draw_application
from trimtab.collect.functions.measurements import (
    Invocations,
    Measurement,
    MeasurementFile,
    Usage,
    statistics_of,
)
from trimtab.core import BadInputError, StorageError

COLUMNS = tuple(field.name for field in fields(Measurement))


def test_durations_are_pooled_and_usage_is_per_invocation() -> None:
    found = statistics_of(
        [
            Invocations((0.1, 0.2), Usage(cpu_user_s=0.3, throttled_periods=4)),
            Invocations((0.6,), Usage(cpu_user_s=0.3, bytes_sent=30)),
        ]
    )
    assert found["mean_s"] == pytest.approx(0.3)
    assert found["median_s"] == 0.2
    assert (found["min_s"], found["max_s"], found["p95_s"], found["p99_s"]) == (0.1, 0.6, 0.6, 0.6)
    assert found["std_s"] == pytest.approx(0.216, abs=0.001)
    assert found["cpu_user_s"] == pytest.approx(0.2)
    assert found["throttled_periods"] == pytest.approx(4 / 3)
    assert found["bytes_sent"] == 10
    assert found.keys() < set(COLUMNS)


def test_usage_is_a_difference() -> None:
    assert Usage(2.0, 1.0, bytes_read=7) - Usage(0.5, 1.0, bytes_read=2) == Usage(1.5, 0.0, bytes_read=5)


SIZES = (128, 256)
DRAWN = [draw_application(index) for index in range(3)]


def rows(application: Application, sizes: tuple[int, ...] = SIZES) -> list[Measurement]:
    return [Measurement("lambda", application.name, size, size / 1769, "ok", 3, 0.5) for size in sizes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two applications."""
    path = tmp_path / "functions.csv"
    file = MeasurementFile(path, SIZES, 0)
    file.begin_with(DRAWN)
    for application in DRAWN[:2]:
        file.append(rows(application))
    return path


def test_a_file_knows_what_it_has(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1].startswith("lambda,f0-0000,128,0.0723573,ok,3,0.5,")
    assert MeasurementFile(path, SIZES, 0).finished(DRAWN) == {("lambda", "f0-0000"), ("lambda", "f0-0001")}
    made = json.loads(path.with_suffix(".applications.json").read_text())
    assert list(made) == ["f0-0000", "f0-0001", "f0-0002"]
    assert made["f0-0000"][0]["kind"] == DRAWN[0].segments[0].kind


@pytest.mark.parametrize("cut", [1, 40, 120])
def test_what_a_kill_cut_off_is_dropped_and_measured_again(path: Path, cut: int) -> None:
    whole = path.read_text()
    path.write_text(whole[:-cut])
    file = MeasurementFile(path, SIZES, 0)
    assert file.finished(DRAWN) == {("lambda", "f0-0000")}
    assert path.read_text() == whole[:-cut], "looking changes nothing"
    file.begin_with(DRAWN)
    file.append(rows(DRAWN[1]))
    assert path.read_text() == whole


def test_a_file_that_is_not_there_or_empty_has_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    assert MeasurementFile(path, SIZES, 0).finished(DRAWN) == set()
    path.touch()
    assert MeasurementFile(path, SIZES, 0).finished(DRAWN) == set()


def test_other_sizes_and_another_seed_are_not_mixed_in(path: Path) -> None:
    before = path.read_text()
    with pytest.raises(BadInputError, match="128, 256 MB"):
        MeasurementFile(path, (128, 256, 512), 0).finished(DRAWN)
    with pytest.raises(BadInputError, match="128, 256 MB"):
        MeasurementFile(path, (128,), 0).finished(DRAWN)
    with pytest.raises(BadInputError, match="seed"):
        MeasurementFile(path, SIZES, 1).finished([draw_application(0, 1)])
    assert path.read_text() == before


def test_applications_made_of_something_else_are_not_mixed_in(path: Path) -> None:
    other = Application("f0-0001", DRAWN[2].segments)
    with pytest.raises(BadInputError, match="f0-0001"):
        MeasurementFile(path, SIZES, 0).finished([DRAWN[0], other])


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "no table at all", "\x00\x01"])
def test_another_file_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match="function measurements"):
        MeasurementFile(path, SIZES, 0).finished(DRAWN)
    assert path.read_text() == text


def test_a_line_in_the_middle_that_is_no_measurement_is_named(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "spoilt\n", *lines[2:]]))
    with pytest.raises(BadInputError, match="line 3 "):
        MeasurementFile(path, SIZES, 0).finished(DRAWN)


@pytest.mark.parametrize("text", ["[]", "{", "3"])
def test_a_broken_companion_is_named(path: Path, text: str) -> None:
    path.with_suffix(".applications.json").write_text(text)
    with pytest.raises(BadInputError, match=r"applications\.json"):
        MeasurementFile(path, SIZES, 0).finished(DRAWN)


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """Files may not grow beyond 1,100 bytes, as on a full disk: not even the one pytest writes to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_whole_applications(path: Path) -> None:
    file = MeasurementFile(path, SIZES, 0)
    before = path.read_text()
    many = [row for _ in range(5) for row in rows(DRAWN[2])]
    with pytest.raises(StorageError, match="cannot be written"), small_files():
        file.append(many)
    assert path.read_text() == before
