import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from trimtab.core import BadInputError
from trimtab.predict.fewshot.blend import Blend
from trimtab.predict.fewshot.case import Case, Corpus
from trimtab.predict.fewshot.curves import Curves
from trimtab.predict.fewshot.encoder import (
    EMBEDDING,
    MOST_RUNS,
    CrossFitted,
    Encoder,
    EpisodeTable,
    Inputs,
    Scaling,
    anchor,
    application_folds,
    departures,
    embed,
    hidden,
    prepared,
    spread_out,
)
from trimtab.predict.fewshot.rules import NearestKnown, Stretch


def test_runs_are_padded_and_only_the_known_are_shown(case: Case) -> None:
    shown = EpisodeTable.of(case, np.array([1, 3]), np.array([0, 2, 4]))
    assert shown.is_run.tolist() == [[1, 1, 0]]
    assert shown.targets.shape[:2] == (1, 3)
    np.testing.assert_allclose(shown.log_seconds[0, :2], np.log(case.seconds[[1, 3]]))
    assert np.isnan(shown.runs[0, 2]).all()
    blind = EpisodeTable.of(case.known_at(np.array([1, 3])), np.array([1, 3]), np.array([0, 2, 4]))
    for name in EpisodeTable.__slots__:
        np.testing.assert_array_equal(getattr(blind, name), getattr(shown, name))


def test_of_many_known_runs_the_fastest_the_slowest_and_a_middle_one_are_looked_at(case: Case) -> None:
    chosen = spread_out(case, np.arange(len(case)))
    assert len(chosen) == MOST_RUNS
    assert case.seconds[chosen].min() == case.seconds.min()
    assert case.seconds[chosen].max() == case.seconds.max()


def test_it_starts_from_the_cpu_share_where_that_differs_and_from_the_nearest_run_elsewhere(
    case: Case,
) -> None:
    known = np.array([2])
    np.testing.assert_allclose(np.exp(anchor(case, known)), Stretch().predict(case, known))
    large = case.only(case.setting("cpus") >= 1)
    known = np.array([0])
    assert len(large) > 1
    np.testing.assert_allclose(np.exp(anchor(large, known)), NearestKnown().predict(large, known))


def test_nothing_known_is_refused(case: Case) -> None:
    with pytest.raises(BadInputError, match=re.escape(case.label)):
        EpisodeTable.of(case, np.array([], dtype=int))
    with pytest.raises(BadInputError, match=re.escape(case.label)):
        EpisodeTable.of(case.known_at(np.array([0])), np.array([1]))


def test_scaling_keeps_what_is_unknown_and_bounds_what_is_far() -> None:
    rows = np.array([[1.0, 5.0, np.nan], [3.0, 5.0, np.nan]])
    scaling = Scaling.of(rows)
    np.testing.assert_allclose(scaling(rows), [[-1, 5, np.nan], [1, 5, np.nan]])
    assert scaling(np.array([[1e30, 0.0, 0.0]]))[0, 0] == 10


def test_an_embedding_has_as_many_numbers_as_it_should(encoder: Encoder, case: Case) -> None:
    result = encoder.embedding(case, np.array([1]))
    assert result.shape == (EMBEDDING,)
    assert np.isfinite(result).all()


def test_the_order_of_the_known_runs_does_not_matter(encoder: Encoder, corpus: Corpus) -> None:
    for case in corpus.cases[:5]:
        one, other = np.array([0, 2, 4]), np.array([4, 0, 2])
        np.testing.assert_allclose(encoder.embedding(case, one), encoder.embedding(case, other), atol=1e-5)
        np.testing.assert_allclose(encoder.predict(case, one), encoder.predict(case, other), rtol=1e-4)


def test_quantiles_rise(encoder: Encoder, corpus: Corpus) -> None:
    for case in corpus.cases[:5]:
        assert (np.diff(encoder.departures(EpisodeTable.of(case, np.array([1, 2]))), axis=2) > 0).all()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(factor=st.floats(1e-9, 1e9), rows=st.sets(st.integers(0, 4), min_size=1, max_size=5))
def test_whatever_is_known_the_answer_is_a_time(
    encoder: Encoder, case: Case, factor: float, rows: set[int]
) -> None:
    from dataclasses import replace

    known = np.array(sorted(rows))
    result = encoder.predict(replace(case, seconds=case.seconds * factor).known_at(known), known)
    assert np.isfinite(result).all()
    assert (result > 0).all()


def test_pytorch_and_numpy_compute_the_same(encoder: Encoder, case: Case) -> None:
    torch = pytest.importorskip("torch")
    shown = EpisodeTable.of(case, np.array([0, 3]))
    inputs = prepared(shown, encoder.scaling)
    tensors = Inputs(*(torch.from_numpy(getattr(inputs, name)) for name in Inputs.__slots__))
    weights = {name: torch.from_numpy(item) for name, item in encoder.weights.items()}
    learned = departures(weights, hidden(weights, tensors, *embed(weights, tensors)))
    np.testing.assert_allclose(learned.numpy(), encoder.departures(shown), atol=1e-5)


def test_using_it_loads_no_pytorch() -> None:
    modules = "trimtab.predict.fewshot.encoder, trimtab.predict.fewshot.foundation"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def member(encoder: Encoder, corpus: Corpus) -> CrossFitted:
    groups = application_folds(corpus, 3, seed=0)
    return CrossFitted(encoder, tuple((group, replace(encoder)) for group in groups))


def test_groups_are_disjoint_and_complete(corpus: Corpus) -> None:
    groups = application_folds(corpus, 3, seed=0)
    assert sorted(name for group in groups for name in group) == sorted(corpus.applications)
    assert application_folds(corpus, 3, seed=0) == groups
    assert application_folds(corpus, 3, seed=1) != groups


def test_whoever_is_left_out_meets_an_encoder_that_has_not_seen_it(
    member: CrossFitted, corpus: Corpus
) -> None:
    assert member.fit(corpus.cases) is member.complete
    for group, encoder in member.parts:
        for gone in (group, frozenset(list(group)[:1])):
            assert member.fit([case for case in corpus.cases if case.application not in gone]) is encoder


def test_applications_of_two_groups_are_not_left_out_together(member: CrossFitted, corpus: Corpus) -> None:
    gone = {next(iter(group)) for group, _ in member.parts}
    with pytest.raises(ValueError, match="groups"):
        member.fit([case for case in corpus.cases if case.application not in gone])


@pytest.mark.parametrize("applications", [5, 15])
def test_the_blend_leaves_out_the_same_groups(encoder: Encoder, corpus: Corpus, applications: int) -> None:
    """Few applications are left out one by one, more in groups; either way there is an encoder for it."""
    names = corpus.applications[:applications]
    some = Corpus("functions", tuple(case for case in corpus.cases if case.application in names))
    parts = tuple((group, encoder) for group in application_folds(some, 3, seed=4))
    member = CrossFitted(encoder, parts)
    fitted = Blend(members=(Curves(), member), rules=(member,), episodes=60, seed=4).fit(some.cases)
    assert fitted.errors["encoder"].keys() == {1, 2, 3}
