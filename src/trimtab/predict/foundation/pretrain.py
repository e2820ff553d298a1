"""Fit the predictors that ship: one per data set, each tested on applications it has not seen."""

from collections.abc import Callable
from pathlib import Path

from trimtab.predict.fewshot import (
    BUNDLED_FUNCTIONS,
    Corpus,
    Curves,
    ForestSettings,
    Leaves,
    Ours,
    functions,
    multicloud,
    scout,
)
from trimtab.predict.foundation.model import Foundation

# Fewer and smaller trees than in the bench: the file has to stay small.
_SHIPPED_FOREST = ForestSettings(trees=40, smallest_leaf=12)

# Called before each data set with its name.
Progress = Callable[[str], None]


def pretrain(data: Path | None, seed: int = 0, progress: Progress = lambda name: None) -> Foundation:
    """From the functions that come with Trimtab and, where `data` is given, multicloud and scout."""
    corpora: list[Corpus] = [functions.read(BUNDLED_FUNCTIONS).completed()]
    if data is not None:
        corpora += [multicloud.read(data, completed_only=True), scout.read(data).completed()]
    predictors = {}
    for corpus in corpora:
        progress(corpus.name)
        forest = ForestSettings(_SHIPPED_FOREST.trees, _SHIPPED_FOREST.smallest_leaf, seed=seed)
        ours = Ours(members=(Curves(), Leaves(forest)), seed=seed)
        predictors[corpus.name] = ours.fit(corpus.cases)
    sources = {
        corpus.name: {
            "applications": len(corpus.applications),
            "cases": len(corpus.cases),
            "environments": list(corpus.environments),
        }
        for corpus in corpora
    }
    return Foundation(predictors, {"seed": seed, "sources": sources})
