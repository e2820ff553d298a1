"""Coordinates: finite, about zero, and those of the rule."""

import numpy as np
import pytest

from trimtab.predict.jobs.training import DataSet, Rule
from trimtab.predict.jobs.training.coordinates import OWN, SHARED, rows_of, rows_of_points, rules


def test_points_of_many_jobs_are_those_of_each(data: DataSet) -> None:
    by_job = rules(data.local, data.points.jobs)
    rows, said = rows_of_points(data.points, data.local, by_job)
    assert rows.shared.shape == (len(data.points), len(SHARED))
    assert rows.own.shape == (len(data.points), len(OWN))
    assert np.abs(rows.shared).max() < 10
    for job in data.points.jobs:
        where = data.points.of(job).where
        mine = rows_of(data.job(job), Rule.of(data.job(job)), where)
        assert rows.shared[rows.job == job] == pytest.approx(mine.shared)
        assert said[rows.job == job] == pytest.approx(np.log(by_job[job].step_seconds(where)))
