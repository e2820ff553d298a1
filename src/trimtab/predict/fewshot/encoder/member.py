"""The encoder beside other predictors of a data set, tested like them on applications it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot import Case, Corpus
from trimtab.predict.fewshot.encoder.network import Encoder

ENCODER = "encoder"


def application_folds(corpus: Corpus, count: int, seed: int) -> tuple[frozenset[str], ...]:
    """The applications of a data set in groups, drawn as `Ours` draws its folds; empty if too few."""
    folds = [frozenset(fold) for fold in random_folds(corpus.applications, count, seed)]
    return (*folds, *[frozenset[str]()] * (count - len(folds)))


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """One encoder trained on all applications of a data set, and one without each group of them.

    Asked to learn from all but some, it answers with the one that has not seen those.
    """

    whole: Encoder
    parts: tuple[tuple[frozenset[str], Encoder], ...]
    name: str = ENCODER

    def suits(self, cases: Sequence[Case]) -> bool:
        return True

    def fit(self, cases: Sequence[Case]) -> Encoder:
        there = {case.application for case in cases}
        left_out = frozenset().union(*(group for group, _ in self.parts)) - there
        if not left_out:
            return self.whole
        for group, encoder in self.parts:
            if left_out <= group:
                return encoder
        raise ValueError("no encoder was trained without just these applications; the groups do not agree")
