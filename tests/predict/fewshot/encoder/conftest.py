"""A few measured functions, and an encoder that has hardly learned from them."""

from dataclasses import replace

import pytest

from trimtab.predict.fewshot import BUNDLED_FUNCTIONS, Case, Corpus, functions
from trimtab.predict.fewshot.encoder import Encoder, EncoderSettings, train

FEW_STEPS = EncoderSettings(episodes=60, steps=40, batch=16, seed=1)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """Under both laws."""
    return Corpus("functions", functions.read(BUNDLED_FUNCTIONS).completed().cases[:20])


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
