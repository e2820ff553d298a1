"""The encoder's answers: a law of sets, quantiles in order, the same numbers in training and use."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.predict.fewshot import Case, Corpus
from trimtab.predict.fewshot.encoder import Encoder
from trimtab.predict.fewshot.encoder.inputs import Seen
from trimtab.predict.fewshot.encoder.network import EMBEDDING, Inputs, departures, embed, hidden, prepared


def test_an_embedding_has_as_many_numbers_as_it_should(encoder: Encoder, case: Case) -> None:
    found = encoder.embedding(case, np.array([1]))
    assert found.shape == (EMBEDDING,)
    assert np.isfinite(found).all()


def test_the_order_of_the_known_runs_does_not_matter(encoder: Encoder, corpus: Corpus) -> None:
    for case in corpus.cases[:5]:
        one, other = np.array([0, 2, 4]), np.array([4, 0, 2])
        np.testing.assert_allclose(encoder.embedding(case, one), encoder.embedding(case, other), atol=1e-5)
        np.testing.assert_allclose(encoder.predict(case, one), encoder.predict(case, other), rtol=1e-4)


def test_quantiles_rise(encoder: Encoder, corpus: Corpus) -> None:
    for case in corpus.cases[:5]:
        assert (np.diff(encoder.departures(Seen.of(case, np.array([1, 2]))), axis=2) > 0).all()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(factor=st.floats(1e-9, 1e9), rows=st.sets(st.integers(0, 4), min_size=1, max_size=5))
def test_whatever_is_known_the_answer_is_a_time(
    encoder: Encoder, case: Case, factor: float, rows: set[int]
) -> None:
    from dataclasses import replace

    known = np.array(sorted(rows))
    found = encoder.predict(replace(case, seconds=case.seconds * factor).seen_at(known), known)
    assert np.isfinite(found).all()
    assert (found > 0).all()


def test_pytorch_and_numpy_compute_the_same(encoder: Encoder, case: Case) -> None:
    torch = pytest.importorskip("torch")
    seen = Seen.of(case, np.array([0, 3]))
    inputs = prepared(seen, encoder.scaling)
    tensors = Inputs(*(torch.from_numpy(getattr(inputs, name)) for name in Inputs.__slots__))
    weights = {name: torch.from_numpy(each) for name, each in encoder.weights.items()}
    learned = departures(weights, hidden(weights, tensors, *embed(weights, tensors)))
    np.testing.assert_allclose(learned.numpy(), encoder.departures(seen), atol=1e-5)


def test_using_it_loads_no_pytorch() -> None:
    modules = "trimtab.predict.fewshot.encoder, trimtab.predict.fewshot.foundation"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
