"""Sia's policy: jobs it knows nothing of begin small, and grow where that is fair."""

from collections.abc import Callable

import numpy as np
import pytest

from trimtab.core import SimulatedClock
from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, policy, usual_shapes

RoundOf = Callable[..., JobColumns]
PARTS = (NodeGroup("t4", "t4", 2, 4, 64.0, 1e12), NodeGroup("a100", "a100", 1, 4, 64.0, 1e12))
CLUSTER = Cluster(PARTS, usual_shapes(PARTS))


def workers(jobs: JobColumns, previous: Allocation | None = None, now: float = 0.0) -> list[int]:
    """How many each job gets."""
    before = previous or Allocation.nothing(len(jobs))
    shape = policy("sia").allocate(jobs, CLUSTER, before, SimulatedClock(now)).shape
    return [0 if each == WAITING else int(CLUSTER.shape_workers[each]) for each in shape]


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 8), (2, 8), (4, 4)])
def test_a_job_that_never_ran_begins_with_its_fewest_workers(
    round_of: RoundOf, least: int, most: int
) -> None:
    with np.errstate(all="raise"):  # also where it has just come and nothing is known to cost a restart
        assert workers(round_of(CLUSTER, [{"least": least, "most": most}])) == [least]


def test_one_that_has_run_grows_and_in_company_all_share(round_of: RoundOf) -> None:
    row = {"least": 1, "most": 4, "done": 100.0}
    assert workers(round_of(CLUSTER, [row]), now=3600.0) == [4]
    assert sum(workers(round_of(CLUSTER, [row] * 12), now=3600.0)) == 12


def test_what_was_just_started_is_left_alone(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"least": 1, "most": 4, "done": 100.0, "settling": True}])
    assert workers(jobs, Allocation(np.array([0]), np.arange(1)), now=3600.0) == [1]
