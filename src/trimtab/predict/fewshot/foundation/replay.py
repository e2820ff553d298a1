"""The cases that weights were learned from, so that they can be learned from again beside new ones."""

import math

import numpy as np

from trimtab.predict.fewshot import BUNDLED_FUNCTIONS, METRICS, Array, Case, FittedOurs, functions
from trimtab.predict.fewshot.curves import squashed
from trimtab.predict.fewshot.foundation.model import Foundation


def replayed(corpus: str, foundation: Foundation) -> tuple[Case, ...]:
    """The training cases of one data set: the functions from their file, others from the weights themselves.

    Weights do not say which cases are of one application or environment: there, every case counts as its own
    application, in one environment, which the curves that are fitted to it do not look at.
    """
    if corpus == "functions":
        return functions.read(BUNDLED_FUNCTIONS).completed().cases
    return _from_weights(corpus, foundation.predictors[corpus])


def _from_weights(corpus: str, fitted: FittedOurs) -> tuple[Case, ...]:
    curves = fitted.curves
    keys = np.array(list(curves.matrix.column_of))
    environment = min(fitted.environments)
    cases = []
    for row, log_seconds in enumerate(curves.matrix.log_seconds):
        run = np.flatnonzero(~np.isnan(log_seconds))
        if run.size:
            cases.append(
                Case(
                    corpus=corpus,
                    application=f"{corpus} {row}",
                    name=f"{corpus} {row}",
                    environment=environment,
                    configurations=tuple(keys[run].tolist()),
                    settings=curves.matrix.settings[run],
                    metrics=_unsquashed(curves.metrics[row, run]),
                    seconds=np.exp(log_seconds[run]),
                    ok=np.ones(run.size, dtype=bool),
                    data=curves.data[row],
                )
            )
    return tuple(cases)


def _unsquashed(values: Array) -> Array:
    """What `squashed` was given; which columns it leaves as they are is seen by asking it."""
    trial = np.full((1, len(METRICS)), math.e)
    is_log = (squashed(trial) != trial)[0]
    plain = values.copy()
    plain[:, is_log] = np.expm1(values[:, is_log])
    return plain
