"""The Gaussian process: gradients, conditioning, and what jobs share."""

import numpy as np
import pytest

from trimtab.predict.jobs.training.process import Process, Rows, Sizes, _Pairs


def _rows(jobs: int, each: int, random: np.random.Generator) -> Rows:
    whose = np.repeat(np.arange(jobs), each).astype(str)
    return Rows(random.normal(size=(len(whose), 2)), random.normal(size=(len(whose), 1)), whose)


def test_gradients_are_those_of_the_kernel() -> None:
    random = np.random.default_rng(0)
    places, slope = random.normal(size=(5, 2)), random.normal(size=(5, 5))
    pairs, logs = _Pairs(places, places), random.normal(size=6)
    found = pairs.gradient(logs, slope)
    for at in range(len(logs)):
        step = np.zeros(len(logs))
        step[at] = 1e-6
        rise = ((pairs.kernel(logs + step) - pairs.kernel(logs - step)) * slope).sum() / 2e-6
        assert found[at] == pytest.approx(rise, rel=1e-4, abs=1e-8)


def test_known_values_are_met_and_doubt_shrinks_there() -> None:
    random = np.random.default_rng(1)
    rows = _rows(3, 8, random)
    values = 0.5 * rows.shared[:, 0] + random.normal(scale=0.01, size=len(rows))
    process = Process.fitted(rows, values, np.ones(len(rows)))
    mean, covariance = process.given(rows, values, np.ones(len(rows)), rows)
    assert mean == pytest.approx(values, abs=0.1)
    assert (np.diag(covariance) < np.diag(process.covariance(rows, rows))).all()


def test_what_jobs_share_helps_a_new_one_and_its_own_rows_help_more() -> None:
    random = np.random.default_rng(2)
    rows = _rows(5, 12, random)
    level = np.repeat(random.normal(scale=0.3, size=5), 12)
    values = rows.shared[:, 0] + level + random.normal(scale=0.02, size=len(rows))
    new = rows.job == "4"
    process = Process.fitted(rows.only(~new), values[~new], np.ones(48))
    alone, doubt = process.given(rows.only(~new), values[~new], np.ones(48), rows.only(new))
    assert np.corrcoef(alone, values[new])[0, 1] > 0.9
    known = ~new
    known[np.flatnonzero(new)[:2]] = True
    after, less = process.given(rows.only(known), values[known], np.ones(known.sum()), rows.only(new))
    assert np.abs(after - values[new]).mean() < 0.5 * np.abs(alone - values[new]).mean()
    assert np.diag(less).mean() < np.diag(doubt).mean()


def test_without_anything_known_it_is_the_prior() -> None:
    rows = _rows(1, 3, np.random.default_rng(3))
    process = Process(Sizes.at_start(2, 1))
    nobody = rows.only(np.zeros(3, dtype=bool))
    mean, covariance = process.given(nobody, np.zeros(0), np.zeros(0), rows)
    assert mean.tolist() == [0.0, 0.0, 0.0]
    assert covariance == pytest.approx(process.covariance(rows, rows))
