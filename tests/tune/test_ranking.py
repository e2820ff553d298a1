"""A job's configurations ranked without a trial: by those that were made, by other jobs, by the rule."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from measured_jobs import JOBS, MIB, Physics, write_measured, write_spec

from trimtab.collect import OUT_OF_MEMORY, read_spec
from trimtab.core import BadInputError, Goal, NotFoundError
from trimtab.tune import JobSource, Ranking, Trial, explain_opinion, rank
from trimtab.tune.state import Identity, open_state
from trimtab.tune.trials import TrialWindow

WIDE, SMALL = "1 × wide, batch 32", "1 × small, batch 32"
Keep = Callable[..., None]


@pytest.fixture
def source(tmp_path: Path) -> JobSource:
    points, local = write_measured(tmp_path)
    return JobSource(write_spec(tmp_path), "tune-me", points=points, local=local)


@pytest.fixture
def keep(source: JobSource) -> Keep:
    """Keeps trials as `trimtab tune` would have made them on this machine."""

    def keep(*trials: Trial, objective: str = "cost", path: Path | None = None) -> None:
        spec = read_spec(source.spec)
        place, space = source.place_and_space(spec, objective)
        effort = TrialWindow(spec.window, spec.patience)
        with open_state(
            Identity.of_job(space, objective, place.name, effort, spec.price_date), path
        ) as state:
            for trial in trials:
                state.add(trial)

    return keep


def trial(setup: str, step: float, fidelity: float = 1.0, at: float = 1.0) -> Trial:
    return Trial(setup, "ok", fidelity, 3.0, 0.001, at, 40, step, 0.01, 21 * MIB)


def named(ranking: Ranking) -> dict[str, str]:
    return {row.setup.name: row.evidence for row in ranking.rows}


def test_without_trials_the_model_answers_for_all(source: JobSource) -> None:
    said = list[str]()
    ranking = rank(source, Goal("cost"), said.append)
    assert set(named(ranking).values()) == {"model"}
    assert len(ranking.rows) == 12
    assert ranking.best.setup.name == WIDE
    assert [row.cost.value for row in ranking.rows] == sorted(row.cost.value for row in ranking.rows)
    assert any("its local run comes with the data" in line for line in said)
    assert any("3 other jobs" in line for line in said)
    assert all(row.fits > 0.5 for row in ranking.rows)
    assert all("on jobs left out the model was off by" in row.why for row in ranking.rows)


def test_the_rule_answers_where_nothing_is_known_of_others(source: JobSource, tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    points, local = write_measured(folder, {"tune-me": JOBS["tune-me"]})
    ranking = rank(JobSource(source.spec, "tune-me", points=points, local=local), Goal("time"))
    assert set(named(ranking).values()) == {"rule"}
    assert {row.why for row in ranking.rows} == {"nothing is known of other jobs"}
    assert ranking.decision.chosen_by == "rule:training-step"


def test_a_trial_is_evidence_whatever_it_was_made_for(source: JobSource, keep: Keep) -> None:
    keep(trial(SMALL, 0.001), objective="time")
    keep(trial(WIDE, 0.06, fidelity=1 / 3), objective="cost")
    ranking = rank(source, Goal("balanced"))
    by = named(ranking)
    assert (by[SMALL], by[WIDE]) == ("trial", "trial")
    full, short = (next(row for row in ranking.rows if row.setup.name == name) for name in (SMALL, WIDE))
    assert full.fidelity == 1
    assert full.memory == 21 * MIB
    assert full.time.value == pytest.approx(0.001 * 50_000_000 / 32)
    assert short.fidelity == pytest.approx(1 / 3)
    assert "short" in short.why
    assert set(by.values()) == {"trial", "model"}


def test_a_longer_look_counts_more_than_a_later_one(source: JobSource, keep: Keep) -> None:
    keep(trial(WIDE, 0.05, at=1.0), objective="cost")
    keep(trial(WIDE, 0.09, fidelity=1 / 3, at=2.0), objective="time")
    row = next(row for row in rank(source, Goal("cost")).rows if row.setup.name == WIDE)
    assert row.fidelity == 1


def test_what_failed_is_left_out_and_said(source: JobSource, keep: Keep) -> None:
    dead = Trial(WIDE, OUT_OF_MEMORY, 1 / 3, 3.0, 0.001, 1.0, reason="out of memory: worker 0 ended")
    keep(dead, trial("1 × roomy, batch 32", 0.04))
    ranking = rank(source, Goal("cost"))
    assert WIDE not in named(ranking)
    assert any(f"{WIDE} was tried, and out of memory" in each.reason for each in ranking.dropped)


def test_too_little_memory_is_left_out_and_said(tmp_path: Path) -> None:
    points, local = write_measured(tmp_path, JOBS | {"tune-me": Physics(0.002, 0.0002, 300 * MIB)})
    ranking = rank(JobSource(write_spec(tmp_path), "tune-me", points=points, local=local), Goal("cost"))
    assert {row.setup.action["shape"] for row in ranking.rows} == {"roomy"}
    reasons = [each.reason for each in ranking.dropped]
    assert any("small has 200 MiB of memory, and a worker needs about 300 MiB" in each for each in reasons)
    assert sum(each.count for each in ranking.dropped) + len(ranking.rows) == 12


def test_machines_to_rent_may_be_larger_than_this_one(source: JobSource) -> None:
    source.spec.write_text(source.spec.read_text().replace("cpus: 0.1", "cpus: 4000"))
    ranking = rank(source, Goal("time"))
    assert len(ranking.rows) == 12
    assert {row.evidence for row in ranking.rows if row.setup.action["shape"] == "wide"} <= {"model", "rule"}


def test_the_first_row_is_decided_for_with_the_rule_beside(source: JobSource) -> None:
    made = rank(source, Goal("cost")).decision
    assert (made.kind, made.subject) == ("recommend", "tune-me")
    assert made.action["shape"] == "wide"
    assert made.estimates["time"].value != made.rule.estimates["time"].value
    assert len(made.alternatives) == 5
    assert sum(part.value for part in made.contributions) == pytest.approx(made.estimates["time"].value)
    assert "other jobs" in made.reason


@pytest.fixture(scope="module")
def known_by_rule(tmp_path_factory: pytest.TempPathFactory) -> JobSource:
    folder = tmp_path_factory.mktemp("limited")
    points, local = write_measured(folder, {"tune-me": JOBS["tune-me"]})
    return JobSource(write_spec(folder), "tune-me", points=points, local=local)


@settings(max_examples=15, deadline=None)
@given(over_time=st.floats(0.8, 12.0), over_cost=st.floats(0.8, 12.0))
def test_limits_hold_or_are_refused(known_by_rule: JobSource, over_time: float, over_cost: float) -> None:
    everything = rank(known_by_rule, Goal("cost")).rows
    deadline = over_time * min(row.time.value for row in everything)
    budget = over_cost * min(row.cost.value for row in everything)
    meets = [row for row in everything if row.time.value <= deadline and row.cost.value <= budget]
    request = Goal("cost", deadline=deadline, budget=budget)
    if not meets:
        with pytest.raises(BadInputError, match="nearest"):
            rank(known_by_rule, request)
        return
    ranking = rank(known_by_rule, request)
    assert [row.setup.name for row in ranking.rows] == [row.setup.name for row in meets]
    over = [each.count for each in ranking.dropped if "over the deadline" in each.reason]
    assert sum(over) == len(everything) - len(meets)


def test_an_explanation_says_what_it_rests_on(source: JobSource, keep: Keep) -> None:
    keep(trial(SMALL, 0.05))
    ranking = rank(source, Goal("cost"))
    place = 1 + [row.setup.name for row in ranking.rows].index(SMALL)
    words = "\n".join(explain_opinion(ranking, place))
    assert f"Row {place}: {SMALL}" in words
    assert "evidence: trial, that is a trial of it, 40 steps" in words
    assert "memory: a worker needs about 21 MiB of 200 MiB; it ran" in words
    other = "\n".join(explain_opinion(ranking, 1))
    assert "evidence: model, that is the model from its local run and other jobs, moved by a trial" in other
    assert "rule: time" in other


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"job": "tune-mee"}, NotFoundError, "did you mean tune-me"),
        ({"spec": Path("nowhere.yaml")}, BadInputError, "there is no file nowhere.yaml"),
        ({"state": Path("nowhere.json")}, BadInputError, "there is no file nowhere.json; trimtab tune"),
        ({"engine": "nomad://x"}, NotFoundError, "no engine is called"),
    ],
)
def test_what_is_not_there_is_said(
    source: JobSource, change: dict[str, object], error: type[Exception], sentence: str
) -> None:
    told = {name: getattr(source, name) for name in ("spec", "job", "engine", "points", "local", "state")}
    with pytest.raises(error, match=sentence):
        rank(JobSource(**told | change), Goal("cost"))


def test_an_objective_that_nobody_knows_is_refused(source: JobSource) -> None:
    with pytest.raises(NotFoundError, match='no objective is called "beauty"'):
        rank(source, Goal("beauty"))


def test_trials_of_another_spec_are_not_this_ones(source: JobSource, keep: Keep, tmp_path: Path) -> None:
    kept = tmp_path / "state.json"
    keep(trial(WIDE, 0.05), path=kept)
    keep(trial(WIDE, 0.05))
    write_spec(tmp_path, samples=1000)
    assert "trial" not in named(rank(source, Goal("cost"))).values()
    told = JobSource(source.spec, "tune-me", points=source.points, local=source.local, state=kept)
    with pytest.raises(BadInputError, match="--state"):
        rank(told, Goal("cost"))


def test_a_job_that_fails_wherever_it_is_tried_is_recommended_nowhere(source: JobSource, keep: Keep) -> None:
    keep(Trial(WIDE, "failed", 1 / 3, 3.0, 0.001, 1.0, reason="the disk is on fire"))
    with pytest.raises(BadInputError, match="the disk is on fire"):
        rank(source, Goal("cost"))


def test_nothing_is_written_down_by_ranking(source: JobSource, keep: Keep, tmp_path: Path) -> None:
    kept = tmp_path / "state.json"
    keep(trial(WIDE, 0.05), path=kept)
    before = json.loads(kept.read_text())
    rank(
        JobSource(source.spec, "tune-me", points=source.points, local=source.local, state=kept),
        Goal("cost"),
    )
    assert json.loads(kept.read_text()) == before
