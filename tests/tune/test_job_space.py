"""The configurations of a job."""

from pathlib import Path

import pytest
from measured_jobs import BATCHES, SAMPLES, SHAPES, WORKERS, write_spec

from trimtab.collect import Spec, read_spec
from trimtab.core import BadInputError, NotFoundError
from trimtab.tune.job_space import JobSpace


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    return read_spec(write_spec(tmp_path))


def test_every_shape_with_every_batch_and_count_of_workers(spec: Spec) -> None:
    there = JobSpace.of(spec, "tune-me", lambda setup: True)
    assert len(there.setups) == len(there.space) == len(SHAPES) * len(BATCHES) * len(WORKERS)
    row = there.space.names.index("2 × wide, batch 32")
    assert there.steps[row] == SAMPLES / 64
    assert there.space.price_per_second[row] == pytest.approx(2 * 0.018 / 3600)
    assert there.space.setting("cpus")[row] == 0.2
    assert there.space.setting("nodes")[row] == 2


def test_what_has_no_room_is_left_out(spec: Spec) -> None:
    assert {setup.workers for setup in JobSpace.of(spec, "tune-me", lambda s: s.workers == 1).setups} == {1}
    with pytest.raises(BadInputError, match="tune-me's 12 configurations"):
        JobSpace.of(spec, "tune-me", lambda setup: False)


def test_an_unknown_job_is_named(spec: Spec) -> None:
    with pytest.raises(NotFoundError, match="tune-me"):
        JobSpace.of(spec, "tune-mee", lambda setup: True)
