"""Step times and gradients as measured, and between what was measured."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule.simulation.goodput_profiles import (
    Between,
    KindTable,
    MeasuredApplication,
    read_profiles,
)

# Smallest and largest batch, epochs, total progress, seconds to restart, and hours on one T4, 2080 Ti and
# A100 at the smallest batch, as published with the data.
FACTS = {
    "cifar10": (128, 4096, 100, 39_063, 50, (2.01, 1.45, 0.76)),
    "bert": (12, 384, 2, 14_774, 120, (4.54, 2.20, 0.83)),
    "deepspeech2": (20, 640, 80, 28_536, 25, (6.48, 3.75, 5.43)),
    "yolov3": (8, 512, 50, 103_444, 80, (11.3, 20.4, 10.4)),
    "imagenet": (200, 12_800, 90, 576_526, 250, (177.0, 89.0, 52.6)),
}
LARGEST = {
    "bert": (12, 12, 48),
    "cifar10": (1024, 1024, 4096),
    "deepspeech2": (80, 80, 320),
    "yolov3": (16, 8, 32),
    "imagenet": (200, 200, 800),
}
KINDS = ("t4", "rtx2080ti", "a100")


@pytest.mark.parametrize("name", FACTS)
def test_applications_are_as_published(name: str, profiles: dict[str, MeasuredApplication]) -> None:
    smallest, largest, epochs, progress, restart, hours = FACTS[name]
    application = profiles[name]
    assert (application.smallest, application.largest) == (smallest, largest)
    assert len(application.milestones) == epochs
    assert application.milestones[-1] == pytest.approx(progress, abs=1.0)
    assert (np.diff(application.milestones) > 0).all()
    assert application.nature.restart == restart
    slowdown = application.nature.slowdown
    steps = [application.kinds[kind].step((1,), smallest)[0] for kind in KINDS]
    assert [progress * step * slowdown / 3600 for step in steps] == pytest.approx(hours, rel=0.01)
    assert tuple(application.kinds[kind].batches[1] for kind in KINDS) == LARGEST[name]


TABLE = KindTable(
    {(1,): np.array([[8.0, 1.0, 0.0], [16.0, 2.0, 0.0]]), (1, 2, 4): np.array([[8.0, 3.0, 1.0]])},
    points=np.array([[n, k, b] for n in (1.0, 2.0) for k in (2.0, 4.0) for b in (8.0, 16.0)]),
    values=np.array([[n + k + b, n] for n in (1.0, 2.0) for k in (2.0, 4.0) for b in (8.0, 16.0)]),
)


def test_between_measured_batches_steps_are_linear() -> None:
    assert TABLE.step((1,), 12) == (1.5, 0.0)


def test_the_same_workers_in_another_order_of_nodes_are_the_same() -> None:
    assert TABLE.step((2, 4, 1), 8) == TABLE.step((4, 1, 2), 8) == (3.0, 1.0)


def test_other_forms_lie_between_those_that_were_measured() -> None:
    assert TABLE.step((3,), 12) == pytest.approx((1 + 3 + 12, 1.0))
    assert TABLE.step((1, 2), 10) == pytest.approx((2 + 3 + 10, 2.0))


def test_beyond_what_was_measured_counts_the_nearest() -> None:
    assert TABLE.step((4, 4), 16) == pytest.approx((2 + 4 + 16, 2.0))
    assert TABLE.step((1,) * 40, 16) == pytest.approx((2 + 4 + 16, 2.0))


def test_the_largest_batch_is_that_of_the_form() -> None:
    assert TABLE.largest_batch((4, 1, 2)) == 8
    assert TABLE.largest_batch((2,)) == 16
    assert TABLE.batches == (8, 16)
    assert TABLE.one_worker == 8.0


def test_gradients_are_linear_between_batches(profiles: dict[str, MeasuredApplication]) -> None:
    application = profiles["cifar10"]
    low, high = application.batches[:2]
    edges = [application.gradient(batch, 3) for batch in (low, high)]
    middle = application.gradient((low + high) / 2, 3)
    assert middle == pytest.approx(np.mean(edges, axis=0))
    assert application.gradient(10 * application.largest, 3) == application.gradient(application.largest, 3)


def test_missing_or_broken_tables_are_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"{tmp_path}.*--data"):
        read_profiles(tmp_path)
    for name in ("placements", "scalability", "validation"):
        (tmp_path / f"{name}.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInputError, match=re.escape(str(tmp_path / "placements.csv.gz"))):
        read_profiles(tmp_path)
    for name in ("placements", "scalability", "validation"):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as file:
            file.write("application,nothing\nbert,1\n")
    with pytest.raises(BadInputError, match=str(tmp_path)):
        read_profiles(tmp_path)


GRID = np.array([[x, y, z] for x in (0.0, 1.0, 3.0) for y in (0.0, 2.0) for z in (0.0, 1.0, 5.0)])
SLOPES = np.array([[2.0, -1.0], [0.5, 3.0], [-4.0, 0.1]])
BETWEEN = Between(GRID, GRID @ SLOPES)


@settings(max_examples=50, deadline=None)
@given(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 2.0), st.floats(0.0, 5.0)))
def test_what_is_linear_stays_so(where: tuple[float, float, float]) -> None:
    assert BETWEEN(np.array(where)) == pytest.approx(np.array(where) @ SLOPES, abs=1e-9)


def test_outside_counts_the_nearest_or_the_mean_of_those_as_near() -> None:
    assert BETWEEN(np.array([9.0, 2.0, 6.0])) == pytest.approx(np.array([3.0, 2.0, 5.0]) @ SLOPES)
    assert BETWEEN(np.array([9.0, 1.0, 6.0])) == pytest.approx(np.array([3.0, 1.0, 5.0]) @ SLOPES)


def test_measured_points_are_as_measured() -> None:
    for point in GRID:
        assert BETWEEN(point) == pytest.approx(point @ SLOPES, abs=1e-9)
