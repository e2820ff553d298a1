"""Fitting what ships, on a handful of functions."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from trimtab.core import BadInputError
from trimtab.predict import Foundation, load_foundation, pretrain
from trimtab.predict.fewshot import BUNDLED_FUNCTIONS, Case, Corpus, ForestSettings, Ours


@pytest.fixture(scope="module")
def handful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first bundled functions, as a file."""
    with BUNDLED_FUNCTIONS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    chosen = list(dict.fromkeys(row["application"] for row in rows))[:3]
    path = tmp_path_factory.mktemp("functions") / "functions.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row for row in rows if row["application"] in chosen)
    return path


@pytest.fixture(autouse=True, scope="module")
def _small(handful: Path) -> Iterator[None]:
    module = sys.modules["trimtab.predict.foundation.pretrain"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BUNDLED_FUNCTIONS", handful)
        patch.setattr(module, "_SHIPPED_FOREST", ForestSettings(trees=3))
        patch.setattr(module, "Ours", partial(Ours, episodes=18))
        yield


@pytest.fixture(scope="module")
def made(_small: None) -> Foundation:
    told: list[str] = []
    found = pretrain(None, seed=3, progress=told.append)
    assert told == ["functions"]
    return found


def test_without_data_it_learns_from_the_functions_that_came_along(made: Foundation, tmp_path: Path) -> None:
    assert made.card["seed"] == 3
    assert made.card["sources"]["functions"]["applications"] == 3
    assert made.for_environment("lambda")[1].errors["trimtab"].keys() == {1, 2, 3}
    made.save(tmp_path / "weights")
    assert load_foundation(tmp_path / "weights").card == made.card


def test_the_same_seed_gives_the_same_weights(made: Foundation, tmp_path: Path) -> None:
    made.save(tmp_path / "one")
    pretrain(None, seed=3).save(tmp_path / "other")
    one, other = load_file(tmp_path / "one"), load_file(tmp_path / "other")
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def test_with_data_there_is_a_predictor_for_each_set(
    cases: tuple[Case, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = sys.modules["trimtab.predict.foundation.pretrain"]
    folders = []

    def read(name: str) -> Corpus:
        chosen = [case for case in cases if case.environment == "lambda"][:3]
        return Corpus(name, tuple(_elsewhere(case, name) for case in chosen))

    for name in ("multicloud", "scout"):
        monkeypatch.setattr(
            getattr(module, name), "read", lambda folder, name=name, **_: folders.append(folder) or read(name)
        )
    made: Foundation = pretrain(tmp_path)
    assert folders == [tmp_path, tmp_path]
    assert list(made.predictors) == ["functions", "multicloud", "scout"]
    name, fitted = made.for_environment("at scout")
    assert name == "scout"
    known = np.array([0])
    assert np.isfinite(fitted.predict(_elsewhere(cases[0], "scout"), known)).all()


def test_a_folder_without_data_is_refused_before_anything_is_learned(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(BadInputError, match="has a file"):
        pretrain(tmp_path, progress=told.append)
    assert told == []


def _elsewhere(case: Case, name: str) -> Case:
    return replace(case, corpus=name, environment=f"at {name}")
