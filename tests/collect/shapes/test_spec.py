"""A spec is read whole or refused in one sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.collect import Shape, read_spec
from trimtab.core import BadInputError, NotFoundError
from trimtab.core.units import MIB

GOOD: dict[str, Any] = {
    "jobs": {"a": {"command": "python a.py -b {batch}", "samples": 100, "epochs": 3, "batches": [8, 16]}},
    "workers": [1, 2],
    "shapes": {
        "small": {"cpus": 0.2, "memory": "320MiB", "price_per_hour": 0.01},
        "wide": {
            "cpus": 1.5, "memory": "1GiB", "price_per_hour": 0.1, "instance": "gcp/us-central1/n1-highcpu-2",
        },
    },
    "price_date": "2026-11-15",
    "window": "3s",
}  # fmt: skip


def spec_with(tmp_path: Path, path: str = "", value: object = None) -> Path:
    """The good one with one value replaced, or left out for None."""
    told = yaml.safe_load(yaml.safe_dump(GOOD))
    if path:
        *folders, last = path.split(".")
        inner = told
        for folder in folders:
            inner = inner[folder]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(told))
    return file


def test_a_spec_is_jobs_times_batches_times_workers_under_shapes(tmp_path: Path) -> None:
    spec = read_spec(spec_with(tmp_path))
    assert [(gang.batch, gang.workers) for gang in spec.gangs()] == [(8, 1), (16, 1), (8, 2), (16, 2)]
    assert spec.shapes[0] == Shape("small", 0.2, 320 * MIB, 0.01)
    assert spec.shapes[1].instance == ("gcp", "us-central1", "n1-highcpu-2")
    assert (spec.window, spec.price_date, spec.job("a").length) == (3.0, "2026-11-15", 300.0)
    assert spec.job("a").words(16) == ["python", "a.py", "-b", "16"]
    assert spec.job("a").steps(16, 2) == 10


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("jobs", None, "jobs"),
        ("jobs", {}, "jobs"),
        ("jobs.a.command", "python a.py", "{batch}"),
        ("jobs.a.command", "python 'a.py {batch}", "python 'a.py {batch}"),
        ("jobs.a.folder", "nowhere", "nowhere"),
        ("jobs.a.samples", 0, "is 0"),
        ("jobs.a.samples", float("nan"), "nan"),
        ("jobs.a.batches", [8, 8], "twice"),
        ("jobs.a.batches", [8.5], "8.5"),
        ("jobs.a.epoch", 3, "did you mean epochs"),
        ("shapes.small.price_per_hour", 0, "is 0"),
        ("shapes.small.cpus", "two", "two"),
        ("shapes.small.memory", 0, "is 0"),
        ("shapes.small.instance", "n1", "cloud/region/type"),
        ("shapes", {"a b": {"cpus": 1, "memory": 1, "price_per_hour": 1}}, "a b"),
        ("workers", [0], "[0]"),
        ("price_date", "soon", "soon"),
        ("window", "0.1s", "0.1"),
        ("windows", "3s", "did you mean window"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(tmp_path: Path, path: str, value: object, part: str) -> None:
    file = spec_with(tmp_path, path, value)
    with pytest.raises(BadInputError) as error:
        read_spec(file)
    assert str(error.value).startswith(str(file))
    assert path.split(".")[-1] in str(error.value) or "a b" in str(error.value)
    assert part in str(error.value)


@pytest.mark.parametrize("text", ["", "- a\n", "jobs: [", "a: &a [*a]"])
def test_no_spec_at_all_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    with pytest.raises(BadInputError):
        read_spec(file)
    with pytest.raises(BadInputError, match=r"none\.yaml"):
        read_spec(tmp_path / "none.yaml")


def test_an_unknown_job_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match='there is no job "b"; there are a'):
        read_spec(spec_with(tmp_path)).job("b")


def test_a_shape_larger_than_the_host_is_refused_where_it_is_measured(tmp_path: Path) -> None:
    for name, value, sentence in (
        ("cpus", 4096, "CPUs are more than"),
        ("memory", "1PiB", "memory are more"),
    ):
        spec = read_spec(spec_with(tmp_path, f"shapes.small.{name}", value))
        with pytest.raises(BadInputError, match=sentence):
            spec.check_host()


def test_shapes_that_do_not_fit_side_by_side_are_left_out(tmp_path: Path) -> None:
    spec = read_spec(spec_with(tmp_path, "shapes.wide.cpus", 1e-3))
    assert [shape.name for shape in spec.shapes_of(1)] == ["small", "wide"]
    assert [shape.name for shape in spec.shapes_of(100_000)] == []
