"""When those who wait will start, from what is believed of those who run."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.schedule import WAITING, Allocation, Cluster, JobColumns, NodeGroup, usual_shapes
from trimtab.schedule.loop.outlook import ExpectedStart, forecast

RoundOf = Callable[[Cluster, Sequence[Mapping[str, Any]]], JobColumns]
GROUPS = (NodeGroup("t4", "t4", 1, 2, 8.0, 2.0**34),)
CLUSTER = Cluster(GROUPS, usual_shapes(GROUPS))


def starts(jobs: JobColumns, shape: list[int]) -> dict[int, ExpectedStart]:
    return forecast(jobs, CLUSTER, Allocation(np.array(shape), np.arange(len(jobs))))


def test_the_next_starts_when_enough_have_ended_and_the_one_after_follows_it(round_of: RoundOf) -> None:
    rows = [
        {"remaining": 100.0, "remaining_low": 50.0, "remaining_high": 400.0},
        {"remaining": 200.0, "remaining_low": 100.0, "remaining_high": 300.0},
        {"least": 2, "most": 2, "remaining": 10.0},
        {"remaining": 10.0, "remaining_low": 10.0, "remaining_high": 10.0},
    ]
    jobs = round_of(CLUSTER, rows)
    speed = jobs.speed[0, 0]
    found = starts(jobs, [0, 0, WAITING, WAITING])
    assert found[2] == ExpectedStart(200 / speed, 100 / speed, 400 / speed)
    assert found[3].value > found[2].value


def test_where_nobody_knows_when_those_who_run_will_end_nothing_is_said(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"remaining": math.nan}, {"remaining": math.nan}, {"remaining": 5.0}])
    assert starts(jobs, [0, 0, WAITING])[2].value == math.inf


def test_a_job_that_can_never_run_holds_nobody_up(round_of: RoundOf) -> None:
    jobs = round_of(CLUSTER, [{"least": 64, "most": 64}, {"remaining": 5.0}])
    found = starts(jobs, [WAITING, WAITING])
    assert (found[0].value, found[1].value) == (math.inf, 0.0)
