"""From measured rows to cases: rows of one case together, repeats of one configuration averaged."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.case import Case, Corpus
from trimtab.predict.fewshot.schema import Array, Flags


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry per run; the fields are those of a case."""

    application: Sequence[str]
    name: Sequence[str]
    environment: Sequence[str]
    configuration: Sequence[str]
    settings: Array
    metrics: Array
    seconds: Array
    ok: Flags
    data: Sequence[str] | None = None

    def corpus(self, name: str) -> Corpus:
        """A case for every (environment, application, name), in the order in which they first come."""
        keys = zip(self.environment, self.application, self.name, strict=True)
        return Corpus(name, tuple(self._case(name, index) for index in _groups(list(keys))))

    def _case(self, corpus: str, index: NDArray[np.intp]) -> Case:
        runs = _groups([self.configuration[i] for i in index])
        chosen = [index[run] for run in runs]
        first = int(index[0])
        return Case(
            corpus=corpus,
            application=self.application[first],
            name=self.name[first],
            environment=self.environment[first],
            configurations=tuple(self.configuration[run[0]] for run in chosen),
            settings=self.settings[[run[0] for run in chosen]],
            metrics=np.array([_mean(self.metrics[run]) for run in chosen]),
            seconds=np.array([_mean(self.seconds[run, None])[0] for run in chosen]),
            ok=np.array([self.ok[run].all() for run in chosen]),
            data=self.data[first] if self.data is not None else "",
        )


def _groups(keys: Sequence[Hashable]) -> list[NDArray[np.intp]]:
    """The positions of every distinct key."""
    found: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        found.setdefault(key, []).append(position)
    return [np.array(positions, dtype=np.intp) for positions in found.values()]


def _mean(values: Array) -> Array:
    """Column means over what is known."""
    if len(values) == 1:
        return np.asarray(values[0])
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
