"""Pipelines for tests: small files of our own, and compiled ones kept beside."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.core import Host, Profile, Series, Workload
from trimtab.pipelines import Pipeline, read_pipeline

DATA = Path(__file__).with_name("data")


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    """Read a text, or one of the compiled files by its name."""

    def read(text: str, **parameters: str) -> Pipeline:
        if (DATA / text[:60]).is_file():
            text = (DATA / text).read_text()
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        return read_pipeline(path, tmp_path / "work", parameters)

    return read


@pytest.fixture
def used() -> Callable[..., Profile]:
    """A profile of a second per sample."""

    def make(cpu: list[float], memory: list[float], cores: float = 4.0) -> Profile:
        times = tuple(float(second) for second in range(1, len(cpu) + 1))
        return Profile(
            id="p",
            created=0.0,
            workload=Workload("stage"),
            host=Host("a CPU", cores, 16e9),
            window=float(len(cpu)),
            every=1.0,
            method="cgroup-v2",
            ended="exited",
            status=0,
            series=Series(time=times, cpu=tuple(cpu), memory=tuple(memory)),
        )

    return make
