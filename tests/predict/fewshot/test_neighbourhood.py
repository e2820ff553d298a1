"""Who is alike, and how far is far."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.encoder import Encoder
from trimtab.predict.fewshot.neighbourhood import (
    Neighbourhood,
    SharedEncoder,
    distance_quantiles,
    unseen_distances,
)


@pytest.fixture(scope="module")
def shared(encoder: Encoder, corpus: Corpus, elsewhere: Corpus) -> SharedEncoder:
    both = [corpus, elsewhere]
    left_out = [frozenset(corpus.applications[:4]), frozenset(corpus.applications[4:8])]
    parts = [
        unseen_distances(encoder, both, dict.fromkeys(("functions", "slow"), item), 0) for item in left_out
    ]
    return SharedEncoder(
        encoder, replace(Neighbourhood.of(encoder, both, 0), unseen=distance_quantiles(parts))
    )


def test_what_was_learned_from_is_nearest_to_itself(shared: SharedEncoder, corpus: Corpus) -> None:
    near = shared.neighbourhood
    for at in (0, 7, 30):
        result = near.distances(near.embeddings[at] * near.scale, int(near.runs[at]))
        assert result.argmin() == near.owner[at]
        assert result.min() < 0.02


def test_the_score_rises_with_how_odd_it_is(shared: SharedEncoder, corpus: Corpus) -> None:
    case, known = corpus.cases[3], np.array([1])
    scores = []
    for factor in (1.0, 1e2, 1e4, 1e8):
        odd = replace(case, seconds=case.seconds * factor)
        scores.append(shared.similarity(odd, known).score)
    assert scores == sorted(scores)
    assert scores[0] < 1.0
    assert scores[-1] == 1.0


def test_neighbours_are_of_its_own_data_set_and_have_names(shared: SharedEncoder, elsewhere: Corpus) -> None:
    result = shared.similarity(elsewhere.cases[5], np.array([0, 2]))
    assert len(result.alike) == 3
    assert all(name.endswith("(slow)") for name in result.alike)


def test_scores_of_unseen_applications_are_spread_evenly(
    shared: SharedEncoder, corpus: Corpus, encoder: Encoder
) -> None:
    """That is what a quantile means: of those it was made from, half are below one half."""
    levels = shared.neighbourhood.unseen["functions"]
    assert levels.shape[0] == 3
    assert (np.diff(levels, axis=1) >= 0).all()
    distances = unseen_distances(encoder, [corpus], {"functions": frozenset(corpus.applications[:4])}, 0)
    table = distance_quantiles([distances])["functions"]
    below = (distances["functions"][0] < np.interp(0.5, np.linspace(0, 1, table.shape[1]), table[0])).mean()
    assert below == pytest.approx(0.5, abs=0.1)


def test_in_and_out_of_a_file_it_stays_the_same(shared: SharedEncoder, corpus: Corpus) -> None:
    again = SharedEncoder.from_weights(*shared.to_weights())
    known = np.array([2])
    for case in corpus.cases[:4]:
        assert again.similarity(case, known) == shared.similarity(case, known)
        np.testing.assert_array_equal(again.encoder.predict(case, known), shared.encoder.predict(case, known))


@pytest.mark.parametrize("damage", ["owner", "weight.out", "scale"])
def test_arrays_that_do_not_fit_are_refused(shared: SharedEncoder, damage: str) -> None:
    whole, words = shared.to_weights()
    arrays = dict(whole)
    if damage == "scale":
        del arrays[damage]
    else:
        arrays[damage] = arrays[damage][:-1]
    with pytest.raises((ValueError, KeyError)):
        SharedEncoder.from_weights(arrays, words)


def test_a_group_of_all_applications_says_nothing(encoder: Encoder, corpus: Corpus) -> None:
    nobody = unseen_distances(encoder, [corpus, _one(corpus)], {"one": frozenset(["alone"])}, 0)
    assert "one" not in distance_quantiles([nobody])


def _one(corpus: Corpus) -> Corpus:
    return Corpus("one", (replace(corpus.cases[0], corpus="one", application="alone"),))
