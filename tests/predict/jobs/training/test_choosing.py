"""What to try next and what to recommend."""

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.jobs.training import (
    Belief,
    Configurations,
    DataSet,
    Ours,
    Trial,
    Wanted,
    chance_of_top,
    expected,
    is_top,
    next_trial,
    recommended,
)


def _wanted(rows: int, objective: str = "time") -> Wanted:
    one = np.ones(rows)
    where = Configurations(tuple("abcdefgh"[:rows]), one, one, one, one, np.arange(1.0, rows + 1))
    return Wanted(where, 100.0, objective)


def _belief(seconds: list[float], deviation: float = 0.1, fits: list[float] | None = None) -> Belief:
    rows = len(seconds)
    return Belief(
        np.log(seconds), np.eye(rows) * deviation**2, 1e-6, 1.6, np.array(fits or [1.0 - 1e-6] * rows)
    )


def test_first_comes_what_would_be_recommended() -> None:
    belief = _belief([3.0, 1.0, 2.0])
    assert next_trial(belief, _wanted(3))[0] == recommended(belief, _wanted(3)) == 1
    assert recommended(belief, _wanted(3, "cost")) == 1
    assert recommended(_belief([1.0, 0.9]), _wanted(2, "cost")) == 0


def test_what_hardly_fits_is_not_recommended() -> None:
    assert recommended(_belief([3.0, 1.0, 2.0], fits=[1.0, 0.1, 1.0]), _wanted(3)) == 2


def test_a_measured_disappointment_gives_way_to_a_belief() -> None:
    belief, trials = _belief([1.5, 1.0]), [Trial(1, 2.0)]
    assert recommended(belief, _wanted(2), trials) == 0
    assert expected(belief, _wanted(2), trials)[1] == pytest.approx(200.0, rel=1e-3)


def test_no_configuration_is_tried_twice_and_gains_are_parts_of_the_best() -> None:
    belief, wanted, trials = _belief([1.0, 1.05, 1.1, 4.0]), _wanted(4), list[Trial]()
    for _ in range(4):
        row, gain = next_trial(belief, wanted, trials)
        assert row not in [trial.row for trial in trials]
        assert not trials or 0 <= gain < 1
        trials.append(Trial(row, float(np.exp(belief.mean[row]))))
    assert trials[-1].row == 3
    with pytest.raises(BadInputError, match="every configuration has been tried"):
        next_trial(belief, wanted, trials)


def test_after_failures_alone_the_next_best_is_tried() -> None:
    row, gain = next_trial(_belief([1.0, 2.0]), _wanted(2), [Trial(0, float("nan"), ok=False)])
    assert row == 1
    assert np.isnan(gain)


def test_the_chance_of_a_top_place_follows_the_values() -> None:
    chance = chance_of_top(_belief([1.0, 1.01, 1.2, 3.0]), _wanted(4))
    assert chance[:2].min() > 0.9
    assert chance[3] < 0.05
    assert chance.tolist() == sorted(chance.tolist(), reverse=True)
    failing = chance_of_top(_belief([1.0, 1.01, 1.2, 3.0], fits=[0.01, 1, 1, 1]), _wanted(4))
    assert failing[0] < 0.1


def test_an_unseen_jobs_top_configurations_are_found(data: DataSet) -> None:
    asked = data.points.of("words")
    belief = Ours.fitted(data.points.without("words"), data.local).belief(data.job("words"), asked.where)
    chance = chance_of_top(belief, Wanted(asked.where, 1e6, "cost"))
    assert chance[is_top(asked.cost)].mean() > 3 * chance[~is_top(asked.cost)].mean()


def test_objectives_have_names() -> None:
    with pytest.raises(BadInputError, match="there are cost and time"):
        _wanted(2, "fame")
