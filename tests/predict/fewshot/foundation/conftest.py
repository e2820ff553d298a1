"""A small foundation, the one that ships, and files that ask them something."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.predict import Foundation, Request, read_request, shipped_foundation
from trimtab.predict.fewshot import (
    BUNDLED_FUNCTIONS,
    Case,
    Curves,
    FittedOurs,
    ForestSettings,
    Leaves,
    Ours,
    functions,
)
from trimtab.predict.fewshot.encoder import EncoderSettings
from trimtab.predict.fewshot.foundation.pretraining import Pretraining

ONE_RUN = {"memory": "512MB", "time": "240ms", "cpu_user": "60ms", "memory_used": "80MB"}


@pytest.fixture(scope="session")
def cases() -> tuple[Case, ...]:
    """A few of the measured functions, under both laws."""
    return functions.read(BUNDLED_FUNCTIONS).completed().cases[:14]


@pytest.fixture(scope="session")
def fitted(cases: tuple[Case, ...]) -> FittedOurs:
    small = Ours(members=(Curves(), Leaves(ForestSettings(trees=6))), episodes=45)
    return small.fit(cases[:9])


@pytest.fixture(scope="session")
def foundation(fitted: FittedOurs) -> Foundation:
    return Foundation({"functions": fitted}, {"seed": 0})


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Pretraining:
    """Hardly any learning, from the first bundled functions."""
    with BUNDLED_FUNCTIONS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    chosen = list(dict.fromkeys(row["application"] for row in rows))[:4]
    path = tmp_path_factory.mktemp("functions") / "functions.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row for row in rows if row["application"] in chosen)
    encoder = EncoderSettings(episodes=20, steps=5, batch=4)
    return Pretraining(ForestSettings(trees=3), encoder, folds=2, episodes=24, functions=path)


@pytest.fixture(scope="session")
def shipped() -> Foundation:
    return shipped_foundation()


@pytest.fixture
def ask(shipped: Foundation, tmp_path: Path) -> Callable[..., Request]:
    """Ask the shipped weights about observations; further fields go into the file."""

    def make(*observations: Any, at: tuple[str, ...] = ("all",), **fields: Any) -> Request:
        path = tmp_path / "application.json"
        told = {"observations": list(observations or [ONE_RUN]), **fields}
        path.write_text(json.dumps(told), encoding="utf-8")
        return read_request(path, at, shipped)

    return make
