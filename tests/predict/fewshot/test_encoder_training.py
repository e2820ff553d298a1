"""Learning from episodes of several data sets at once."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.encoder import Encoder, anchor
from trimtab.predict.fewshot.encoder_training import (
    EncoderSettings,
    draw,
    known_sets,
    leaving_out,
    scaling_rows,
    train,
)

FEW_STEPS = EncoderSettings(episodes=60, steps=40, batch=16, seed=1)


def test_the_same_seed_gives_the_same_weights(encoder: Encoder, corpus: Corpus, elsewhere: Corpus) -> None:
    again = train([corpus, elsewhere], FEW_STEPS)
    for name, item in encoder.weights.items():
        np.testing.assert_array_equal(again.weights[name], item)
    other = train([corpus, elsewhere], replace(FEW_STEPS, seed=2))
    assert any((other.weights[name] != item).any() for name, item in encoder.weights.items())


def test_it_learns_what_the_anchor_does_not_know(corpus: Corpus) -> None:
    """Where large sizes take five times as long as a rule would think, an encoder finds out."""
    odd = [
        replace(case, seconds=case.seconds * np.where(np.arange(len(case)) > 2, 5.0, 1.0))
        for case in corpus.cases
    ]
    learned = train([Corpus("odd", tuple(odd))], EncoderSettings(episodes=200, steps=150, batch=32))
    known = np.array([0])
    by_anchor, by_encoder = list[float](), list[float]()
    for case in odd:
        by_anchor.append(float(np.abs(anchor(case, known) - np.log(case.seconds))[1:].mean()))
        by_encoder.append(float(np.abs(np.log(learned.predict(case, known) / case.seconds))[1:].mean()))
    assert np.mean(by_encoder) < 0.5 * np.mean(by_anchor)


def test_progress_ends_at_one(corpus: Corpus) -> None:
    description: list[float] = []
    train([corpus], EncoderSettings(episodes=20, steps=100, batch=4), description.append)
    assert description == [0.5, 1.0]


def test_episodes_never_show_a_target(corpus: Corpus) -> None:
    drawn = draw(corpus, 80, 4, seed=0)
    assert len(drawn) == 80
    runs = drawn.known.is_run.sum(axis=1)
    assert set(runs.tolist()) == {1, 2, 3}
    settings = drawn.known.targets.shape[2]
    shown, wanted = drawn.known.runs[:, :, None, :settings], drawn.known.targets[:, None]
    same = (np.isclose(shown, wanted) | (np.isnan(shown) & np.isnan(wanted))).all(axis=3)
    assert not (same & (drawn.known.is_run[..., None] > 0)).any()


def test_some_episodes_know_no_metrics(corpus: Corpus) -> None:
    drawn = draw(corpus, 80, 4, seed=0)
    settings = drawn.known.targets.shape[2]
    bare = np.isnan(drawn.known.runs[:, 0, settings:]).all(axis=1)
    assert 0.05 < bare.mean() < 0.5


def test_scaling_is_not_ruled_by_the_larger_data_set(corpus: Corpus, elsewhere: Corpus) -> None:
    many, few = draw(corpus, 60, 4, seed=0), draw(elsewhere, 12, 4, seed=0)
    rows = scaling_rows([many, few])
    assert len(rows) <= 2 * 12 * 3


def test_applications_are_left_out_by_data_set(corpus: Corpus, elsewhere: Corpus) -> None:
    gone = frozenset(corpus.applications[:2])
    kept, other = leaving_out([corpus, elsewhere], {"functions": gone})
    assert not gone & set(kept.applications)
    assert gone <= set(other.applications)
    assert leaving_out([corpus], {"functions": frozenset(corpus.applications)}) == []


def test_known_sets_leave_one_to_predict(corpus: Corpus) -> None:
    case = corpus.cases[0].only([0, 1, 2])
    assert len(list(known_sets(case, 2, 5, seed=0))) == 5
    assert list(known_sets(case, 3, 5, seed=0)) == []


def test_single_runs_are_nothing_to_learn_from(corpus: Corpus) -> None:
    alone = Corpus("alone", tuple(case.only([0]) for case in corpus.cases))
    with pytest.raises(BadInputError, match="two runs"):
        draw(alone, 10, 4, seed=0)
