"""What every few-shot predictor offers, be it a rule or a learned model."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.schema import Array

Rows = NDArray[np.intp]


class Fitted(Protocol):
    """A predictor that has seen its training cases."""

    def predict(self, case: Case, known: Rows) -> Array:
        """Seconds under every configuration of the case.

        Of its seconds, metrics and `ok` only the rows in `known` are read; at those the answer is free.
        """
        ...


class Predictor(Protocol):
    """Learns from cases of other applications; a rule that has nothing to learn ignores them."""

    @property
    def name(self) -> str: ...

    def fit(self, cases: Sequence[Case]) -> Fitted: ...


def known_log_seconds(case: Case, known: Rows) -> Array:
    """The logarithms of the known times; there must be one at least, and a time in each."""
    seconds = case.seconds[known]
    if not seconds.size:
        raise BadInputError(f"{case.label}: no configuration is known; a prediction needs one at least")
    for row in np.asarray(known)[np.isnan(seconds)][:1]:
        raise BadInputError(f"{case.label}, {case.configurations[row]}: known, but without a time")
    return np.asarray(np.log(seconds))


def need_cases(cases: Sequence[Case], name: str) -> None:
    """Refuse to learn from nothing."""
    if not cases:
        raise BadInputError(f"{name} needs at least one case to learn from")
