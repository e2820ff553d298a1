import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fewshot_cases import make_case, write_csv

from trimtab.predict import Foundation, shipped_foundation
from trimtab.predict.fewshot.blend import Blend, FittedBlend
from trimtab.predict.fewshot.case import Case, Corpus
from trimtab.predict.fewshot.curves import Curves
from trimtab.predict.fewshot.datasets import BUNDLED_FUNCTIONS, read_functions
from trimtab.predict.fewshot.encoder import Encoder
from trimtab.predict.fewshot.encoder_training import EncoderSettings, train
from trimtab.predict.fewshot.forest import ForestPredictor, ForestSettings
from trimtab.predict.fewshot.pretraining import Pretraining
from trimtab.predict.fewshot.request import PredictionRequest, read_request

__all__ = ["make_case", "write_csv"]


FEW_STEPS = EncoderSettings(episodes=60, steps=40, batch=16, seed=1)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """Under both laws."""
    return Corpus("functions", read_functions(BUNDLED_FUNCTIONS).completed().cases[:20])


@pytest.fixture(scope="session")
def elsewhere(corpus: Corpus) -> Corpus:
    """Another data set, whose applications take three times as long and tell nothing but that."""
    changed = (
        replace(case, corpus="slow", environment="slow", seconds=3 * case.seconds) for case in corpus.cases
    )
    return Corpus("slow", tuple(replace(case, metrics=case.metrics * float("nan")) for case in changed))


@pytest.fixture(scope="session")
def encoder(corpus: Corpus, elsewhere: Corpus) -> Encoder:
    return train([corpus, elsewhere], FEW_STEPS)


@pytest.fixture(scope="session")
def case(corpus: Corpus) -> Case:
    return corpus.cases[0]


ONE_RUN = {"memory": "512MB", "time": "240ms", "cpu_user": "60ms", "memory_used": "80MB"}


@pytest.fixture(scope="session")
def cases() -> tuple[Case, ...]:
    """A few of the measured functions, under both laws."""
    return read_functions(BUNDLED_FUNCTIONS).completed().cases[:14]


@pytest.fixture(scope="session")
def fitted(cases: tuple[Case, ...]) -> FittedBlend:
    small = Blend(members=(Curves(), ForestPredictor(ForestSettings(trees=6))), episodes=45)
    return small.fit(cases[:9])


@pytest.fixture(scope="session")
def foundation(fitted: FittedBlend) -> Foundation:
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
def ask(shipped: Foundation, tmp_path: Path) -> Callable[..., PredictionRequest]:
    """Ask the shipped weights about observations; further fields go into the file."""

    def make(*observations: Any, at: tuple[str, ...] = ("all",), **fields: Any) -> PredictionRequest:
        path = tmp_path / "application.json"
        description = {"observations": list(observations or [ONE_RUN]), **fields}
        path.write_text(json.dumps(description), encoding="utf-8")
        return read_request(path, at, shipped)

    return make
