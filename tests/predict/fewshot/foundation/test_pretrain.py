"""Learning what ships, on a handful of functions."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from trimtab.core import BadInputError
from trimtab.predict import Foundation, load_foundation, pretrain
from trimtab.predict.fewshot import Case, Corpus, FittedCurves
from trimtab.predict.fewshot.foundation.pretraining import Pretraining

Told = list[tuple[str, float]]


@pytest.fixture(scope="module")
def told() -> Told:
    return []


@pytest.fixture(scope="module")
def made(small: Pretraining, told: Told) -> Foundation:
    return pretrain(None, 3, lambda what, part: told.append((what, part)), settings=small)


def test_without_data_it_learns_from_the_functions_that_came_along(made: Foundation, tmp_path: Path) -> None:
    assert made.card["seed"] == 3
    assert made.card["sources"]["functions"]["applications"] == 4
    assert made.for_environment("lambda")[1].errors["trimtab"].keys() == {1, 2, 3}
    made.save(tmp_path / "weights")
    assert load_foundation(tmp_path / "weights").card == made.card


def test_what_is_finished_is_told_until_all_is(made: Foundation, told: Told) -> None:
    assert {what for what, _ in told} == {
        "encoder", "encoder without group 1", "encoder without group 2", "functions",
    }  # fmt: skip
    assert [part for _, part in told] == [0.25, 0.5, 0.75, 1.0]


def test_the_encoder_alone_went_through_the_test_but_is_no_rule(made: Foundation) -> None:
    fitted = made.predictors["functions"]
    assert fitted.errors["encoder"].keys() == {1, 2, 3}
    assert "encoder" not in fitted.rules


def test_members_without_a_share_are_left_out_but_for_the_curves(made: Foundation) -> None:
    fitted = made.predictors["functions"]
    assert isinstance(fitted.members[0], FittedCurves)
    assert all(share > 0 for share in fitted.shares[1:])
    assert sum(fitted.shares) == pytest.approx(1.0)


def test_whoever_was_learned_from_is_known(made: Foundation, cases: tuple[Case, ...]) -> None:
    assert made.shared is not None
    found = made.shared.acquaintance(cases[0], np.array([1]))
    assert 0.0 <= found.score <= 1.0
    assert len(found.alike) == 3
    assert cases[0].name in "".join(made.shared.neighbourhood.names[0])


def test_the_same_seed_gives_the_same_weights(made: Foundation, small: Pretraining, tmp_path: Path) -> None:
    made.save(tmp_path / "one")
    pretrain(None, seed=3, settings=small).save(tmp_path / "other")
    one, other = load_file(tmp_path / "one"), load_file(tmp_path / "other")
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def test_with_data_there_is_a_predictor_for_each_set(
    small: Pretraining, cases: tuple[Case, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = sys.modules["trimtab.predict.fewshot.foundation.pretraining"]
    others = ["multicloud", "scout", "steps", "gavel"]
    folders = []

    def read(name: str) -> Corpus:
        chosen = [case for case in cases if case.environment == "lambda"][:3]
        return Corpus(name, tuple(_elsewhere(case, name) for case in chosen))

    for name in others:
        monkeypatch.setattr(
            getattr(module, name), "read", lambda folder, name=name, **_: folders.append(folder) or read(name)
        )
    made: Foundation = pretrain(tmp_path, settings=small)
    assert folders == [tmp_path] * 4
    assert list(made.predictors) == ["functions", *others]
    name, fitted = made.for_environment("at scout")
    assert name == "scout"
    known = np.array([0])
    assert np.isfinite(fitted.predict(_elsewhere(cases[0], "scout"), known)).all()
    assert made.shared is not None
    assert made.shared.neighbourhood.unseen.keys() == {"functions", *others}


def test_a_folder_without_data_is_refused_before_anything_is_learned(tmp_path: Path, told: Told) -> None:
    before = list(told)
    with pytest.raises(BadInputError, match="has a file"):
        pretrain(tmp_path, progress=lambda what, part: told.append((what, part)))
    assert told == before


def test_what_is_no_engine_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is no engine"):
        pretrain(tmp_path, engine="moon://")


def _elsewhere(case: Case, name: str) -> Case:
    return replace(case, corpus=name, environment=f"at {name}")
