"""Sessions: which trials are made, how long they look, when they end, and what is recommended."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from measured_jobs import JOBS, write_measured, write_spec
from paced_place import Pace, PacedPlace
from recording_ledger import RecordingLedger

from trimtab.collect import read_spec
from trimtab.core import BadInputError, NotFoundError, StorageError
from trimtab.predict.jobs.training_data import DataSet, read_local, read_points
from trimtab.tune import Begun, Done, Limits, News, Tuned, TuneOptions
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.job_space import JobSpace, Setup
from trimtab.tune.searcher import Searcher
from trimtab.tune.session import METHODS, JobTrials, TuningSession
from trimtab.tune.state import Identity, StateFile, open_state
from trimtab.tune.trials import TrialWindow

EFFORT = TrialWindow(seconds=0.2, patience=0.3)
TRUTH = JOBS["tune-me"]


class Bench:
    """What a session needs around it."""

    def __init__(self, folder: Path) -> None:
        points, local = write_measured(folder)
        self.data = DataSet(read_points(points), read_local(local))
        self.spec = read_spec(write_spec(folder))
        self.space = JobSpace.of(self.spec, "tune-me", lambda setup: True)
        self.ledger = RecordingLedger()
        self.news: list[News] = []
        self.state_path = folder / "state.json"

    def tune(
        self,
        place: PacedPlace,
        limits: Limits,
        objective: str = "cost",
        method: str = "trimtab",
        others: bool = True,
        space: JobSpace | None = None,
    ) -> Tuned:
        space = space or self.space
        at_random, local = method == "random", self.data.local["tune-me"]
        known = self.data if others and not at_random else None
        forecast = JobForecast.of(space.space, space.where, space.steps, local, known)
        searcher = Searcher(space.space, objective, forecast, at_random=at_random)
        identity = Identity.of_job(space, objective, place.name, EFFORT, self.spec.price_date)
        with open_state(identity, self.state_path) as state:
            session = TuningSession(space, searcher, JobTrials(space, place, EFFORT), state, self.ledger)
            return session.run(limits, self.news.append)


@pytest.fixture
def table(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def true_pace(setup: Setup) -> float:
    return TRUTH.seconds(setup.shape.cpus, setup.batch, setup.workers)


def surprising(better: Callable[[Setup], bool], by: float = 0.3) -> Pace:
    """As the model says, but for configurations that are faster than anybody thinks."""
    return lambda setup: true_pace(setup) * (by if better(setup) else 1.0)


def test_without_trials_the_forecast_is_recommended(table: Bench) -> None:
    place = PacedPlace(true_pace)
    tuned = table.tune(place, Limits(trials=0))
    assert place.begun == []
    assert tuned.trials == ()
    assert tuned.spent == 0
    assert tuned.best.setup.name == "1 × wide, batch 32"
    assert tuned.best.evidence == "model"
    seconds = math.ceil(table.space.job.length / 32) * TRUTH.seconds(0.2, 32, 1)
    assert tuned.best.time.value == pytest.approx(seconds, rel=0.1)
    assert "no trials" in tuned.stopped


def test_a_trial_confirms_and_another_is_not_worth_it(table: Bench) -> None:
    place = PacedPlace(true_pace)
    tuned = table.tune(place, Limits(trials=5))
    assert 1 <= len(tuned.trials) < 5
    assert "costs" in tuned.stopped
    assert tuned.best.evidence == "trial"
    assert tuned.best.time.low < tuned.best.time.value < tuned.best.time.high
    assert tuned.rests_on.startswith("a trial of it, ")
    assert place.begun == place.ended == [trial.setup for trial in tuned.trials]


def test_what_turns_out_better_is_found_where_the_rule_alone_is_known(table: Bench) -> None:
    place = PacedPlace(surprising(lambda setup: setup.shape.name == "small"))
    tuned = table.tune(place, Limits(trials=6), others=False)
    assert tuned.best.setup.action["shape"] == "small"
    assert tuned.best.evidence == "trial"
    costs = [each.cost.value for each in tuned.opinions]
    assert costs == sorted(costs)


def test_the_objective_decides(table: Bench) -> None:
    cheap = table.tune(PacedPlace(true_pace), Limits(trials=0), "cost")
    table.state_path = table.state_path.with_name("time.json")
    fast = table.tune(PacedPlace(true_pace), Limits(trials=0), "time")
    assert fast.best.setup.action["workers"] == 2
    assert cheap.best.setup.action["workers"] == 1
    assert fast.best.time.value < cheap.best.time.value
    assert fast.best.cost.value > cheap.best.cost.value


def test_a_bad_one_is_looked_at_only_briefly(table: Bench) -> None:
    place = PacedPlace(true_pace)
    tuned = table.tune(place, Limits(trials=12), method="random")
    looks = {trial.setup: trial.fidelity for trial in tuned.trials}
    assert looks[tuned.best.setup.name] == 1
    worst = max(tuned.opinions, key=lambda each: each.cost.value)
    assert looks[worst.setup.name] == pytest.approx(1 / 3)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_tunes(table: Bench, method: str) -> None:
    place = PacedPlace(true_pace)
    tuned = table.tune(place, Limits(trials=3), method=method)
    assert 1 <= len(place.begun) == len(tuned.trials) <= 3
    assert len(set(place.begun)) == len(place.begun)
    assert tuned.stopped
    assert all(each.time.value > 0 for each in tuned.opinions)


def test_the_budget_is_kept(table: Bench) -> None:
    tuned = table.tune(PacedPlace(true_pace), Limits(trials=5, budget=0.0))
    assert tuned.trials == ()
    assert "budget" in tuned.stopped


def test_every_trial_is_a_decision_with_its_outcome(table: Bench) -> None:
    tuned = table.tune(PacedPlace(true_pace), Limits(trials=2), method="random")
    *trials, last = table.ledger.decisions
    assert [each.kind for each in trials] == ["trial", "trial"]
    assert last.kind == "tune"
    assert [each.id for each in trials] == [each.decision_id for each in table.ledger.outcomes]
    for decision, outcome, trial in zip(trials, table.ledger.outcomes, tuned.trials, strict=True):
        assert decision.id == trial.decision
        assert decision.rule.estimates["time"].value > 0
        assert decision.reason
        assert decision.alternatives
        assert outcome.measured["cost"] > 0
    assert last.id == tuned.decision
    assert last.subject == "tune-me"
    assert [type(each) for each in table.news] == [Begun, Done, Begun, Done]


def test_what_was_tried_is_not_tried_again(table: Bench) -> None:
    first = table.tune(PacedPlace(true_pace), Limits(trials=2), method="random")
    again = PacedPlace(true_pace)
    second = table.tune(again, Limits(trials=3), method="random")
    assert second.trials[:2] == first.trials
    assert len(again.begun) == 1
    assert again.begun[0] not in [trial.setup for trial in first.trials if trial.fidelity == 1]
    third = PacedPlace(true_pace)
    assert table.tune(third, Limits(trials=3), method="random").trials == second.trials
    assert third.begun == []


@pytest.mark.parametrize(
    ("how", "status"), [("dies", "failed"), ("oom", "out-of-memory"), ("nan", "diverged")]
)
def test_a_failed_trial_counts_and_is_never_the_answer(table: Bench, how: str, status: str) -> None:
    place = PacedPlace(lambda setup: how if setup.shape.name == "wide" else true_pace(setup))
    tuned = table.tune(place, Limits(trials=3), others=False)
    failed = [trial for trial in tuned.trials if not trial.ok]
    assert failed
    assert {trial.status for trial in failed} == {status}
    assert all(t.reason for t in failed)
    assert tuned.best.setup.name not in [trial.setup for trial in failed]
    assert place.ended == place.begun


def test_a_job_that_fails_everywhere_is_recommended_nowhere(table: Bench) -> None:
    with pytest.raises(BadInputError, match="the loss"):
        table.tune(PacedPlace(lambda setup: "nan"), Limits(trials=2))


def test_a_job_that_never_steps_says_so(table: Bench) -> None:
    with pytest.raises(BadInputError, match=r"0 of 4 steps"):
        table.tune(PacedPlace(lambda setup: "silent"), Limits(trials=1))


def test_shapes_without_the_memory_are_refused_before_any_trial(table: Bench) -> None:
    tiny = tuple(replace(setup, shape=replace(setup.shape, memory=2.0**20)) for setup in table.space.setups)
    with pytest.raises(BadInputError, match="12 configurations"):
        table.tune(PacedPlace(true_pace), Limits(trials=2), space=JobSpace(table.space.job, tiny))


def test_an_interrupted_trial_is_not_kept(table: Bench) -> None:
    def interrupted(setup: Setup) -> float:
        raise KeyboardInterrupt

    place = PacedPlace(interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.tune(place, Limits(trials=2))
    assert place.begun
    assert place.ended == place.begun
    assert table.tune(PacedPlace(true_pace), Limits(trials=1)).trials[0].setup == place.begun[0]


def test_the_deadline_is_kept(table: Bench) -> None:
    tuned = table.tune(PacedPlace(true_pace), Limits(trials=5, seconds=1.0))
    assert tuned.trials == ()
    assert "deadline" in tuned.stopped


@pytest.mark.parametrize("limits", [(-1, 1.0, 1.0), (1, -1.0, 1.0), (1, math.nan, 1.0), (1, 1.0, -1.0)])
def test_impossible_limits_are_refused(limits: tuple[int, float, float]) -> None:
    with pytest.raises(BadInputError):
        Limits(*limits)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [({"method": "randon"}, NotFoundError, "random"), ({"objective": "coast"}, BadInputError, "cost")],
)
def test_an_unknown_option_names_the_nearest(options: dict, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        TuneOptions(**options)


def test_a_state_can_be_opened_once(table: Bench) -> None:
    identity = Identity.of_job(table.space, "cost", "here", EFFORT, "2026-11-15")
    with open_state(identity, table.state_path) as state:
        assert isinstance(state, StateFile)
        with (
            pytest.raises(StorageError, match="trimtab tune"),
            open_state(identity, table.state_path),
        ):
            pass
