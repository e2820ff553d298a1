"""An encoder among other predictors never predicts what it has seen."""

from dataclasses import replace

import pytest

from trimtab.predict.fewshot import Corpus, Curves, Ours
from trimtab.predict.fewshot.encoder import CrossFitted, Encoder, application_folds


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
    assert member.fit(corpus.cases) is member.whole
    for group, encoder in member.parts:
        for gone in (group, frozenset(list(group)[:1])):
            assert member.fit([case for case in corpus.cases if case.application not in gone]) is encoder


def test_applications_of_two_groups_are_not_left_out_together(member: CrossFitted, corpus: Corpus) -> None:
    gone = {next(iter(group)) for group, _ in member.parts}
    with pytest.raises(ValueError, match="groups do not agree"):
        member.fit([case for case in corpus.cases if case.application not in gone])


@pytest.mark.parametrize("applications", [5, 15])
def test_the_blend_leaves_out_the_same_groups(encoder: Encoder, corpus: Corpus, applications: int) -> None:
    """Few applications are left out one by one, more in groups; either way there is an encoder for it."""
    names = corpus.applications[:applications]
    some = Corpus("functions", tuple(case for case in corpus.cases if case.application in names))
    parts = tuple((group, encoder) for group in application_folds(some, 3, seed=4))
    member = CrossFitted(encoder, parts)
    fitted = Ours(members=(Curves(), member), rules=(member,), episodes=60, seed=4).fit(some.cases)
    assert fitted.errors["encoder"].keys() == {1, 2, 3}
