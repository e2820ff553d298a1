"""Distance of an application from everything learned from, in embedding space (FLASH, section 2).

A distance by itself says little. So applications held out of training are embedded by an encoder that has not
seen them, and a request's distance is given as the share of those that were nearer: its score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.case import Array, Case, Corpus
from trimtab.predict.fewshot.encoder import MOST_RUNS, SHAPES, Encoder, Scaling, Seen, Single
from trimtab.predict.fewshot.encoder_training import Without, known_sets, leaving_out, without_metrics
from trimtab.predict.fewshot.predictor import Arrays, Rows, Words, under

_SETS = 3  # of known runs, that stand for a case; of one of them no metrics are known
_NAMED = 3  # applications that are named as most alike
_QUANTILES = 200


@dataclass(frozen=True, slots=True)
class Similarity:
    """How well an application is known: distances to the nearest that was learned from."""

    own: float  # within its data set
    score: float  # part of the unseen applications of its data set that were nearer to known ones
    alike: tuple[str, ...]  # the nearest, nearest first


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """Embeddings of everything learned from, and how far from it unseen applications were."""

    embeddings: NDArray[np.float16]  # (sets of known runs, EMBEDDING), divided by `scale`
    owner: NDArray[np.int32]  # of every set the position in `names`
    runs: NDArray[np.uint8]  # known in every set
    scale: Single  # of every number of an embedding
    names: tuple[tuple[str, str], ...]  # data set and case
    unseen: Mapping[str, Single]  # by data set: (MOST_RUNS, quantiles) of unseen applications' distances

    @classmethod
    def of(cls, encoder: Encoder, corpora: Sequence[Corpus], seed: int) -> "Neighbourhood":
        """Of all cases; how far unseen ones are is not known yet."""
        chosen = [case for corpus in corpora for case in corpus.cases]
        sets = [
            (at, each, known) for at, case in enumerate(chosen) for each, known in _known_sets(case, seed)
        ]
        found = encoder.embeddings(
            Seen.join([Seen.of(case, known, np.array([0])) for _, case, known in sets])
        )
        scale = np.maximum(found.std(axis=0), 1e-3)
        return cls(
            (found / scale).astype(np.float16),
            np.array([at for at, _, _ in sets], dtype=np.int32),
            np.array([len(known) for _, _, known in sets], dtype=np.uint8),
            scale,
            tuple((case.corpus, f"{case.name} ({case.environment})") for case in chosen),
            {},
        )

    def distances(self, embedding: Single, runs: int) -> Single:
        """To every case's nearest set of as many known runs; infinite where it has none."""
        same = self.runs == min(runs, MOST_RUNS)
        apart = self.embeddings[same].astype(np.float32) - embedding / self.scale
        each = np.sqrt((apart**2).mean(axis=1))
        nearest = np.full(len(self.names), np.inf, dtype=np.float32)
        np.minimum.at(nearest, self.owner[same], each)
        return nearest

    def similarity(self, encoder: Encoder, case: Case, known: Rows) -> Similarity:
        """Of a request."""
        nearest = self.distances(encoder.embedding(case, known), len(known))
        own = np.array([corpus == case.corpus for corpus, _ in self.names])
        of_own = np.where(own, nearest, np.inf)
        alike = np.argsort(of_own, kind="stable")[:_NAMED]
        return Similarity(
            float(of_own.min()),
            self._score(case.corpus, len(known), float(of_own.min())),
            tuple(self.names[at][1] for at in alike if np.isfinite(of_own[at])),
        )

    def _score(self, corpus: str, runs: int, distance: float) -> float:
        quantiles = self.unseen[corpus][min(runs, MOST_RUNS) - 1]
        return float(np.interp(distance, quantiles, np.linspace(0.0, 1.0, len(quantiles))))


def unseen_distances(
    encoder: Encoder, corpora: Sequence[Corpus], without: Without, seed: int
) -> dict[str, tuple[Array, ...]]:
    """By data set and known runs, how far the applications in `without` are from the others of it."""
    known_ones = Neighbourhood.of(encoder, leaving_out(corpora, without), seed)
    found = {}
    for corpus in corpora:
        own = np.array([name == corpus.name for name, _ in known_ones.names])
        left_out = without.get(corpus.name, frozenset()) if own.any() else frozenset()
        met = [case for case in corpus.cases if case.application in left_out]
        by_runs: list[list[float]] = [[] for _ in range(MOST_RUNS)]
        for case in met:
            for shown, known in _known_sets(case, seed):
                nearest = known_ones.distances(encoder.embedding(shown, known), len(known))
                by_runs[len(known) - 1].append(float(nearest[own].min()))
        found[corpus.name] = tuple(np.array(each) for each in by_runs)
    return found


def distance_quantiles(parts: Sequence[Mapping[str, tuple[Array, ...]]]) -> dict[str, Single]:
    """The distances of several groups left out in turn, all together, as quantiles by known runs.

    Where nobody had so many runs and one to spare, those with fewer count.
    """
    levels = np.linspace(0.0, 1.0, _QUANTILES)
    found = {}
    for name in parts[0]:
        by_runs = [np.concatenate([part[name][at] for part in parts]) for at in range(MOST_RUNS)]
        usable = [each for each in by_runs if each.size]
        if usable:
            rows = [np.quantile(each if each.size else usable[-1], levels) for each in by_runs]
            found[name] = np.array(rows, dtype=np.float32)
    return found


def _known_sets(case: Case, seed: int) -> list[tuple[Case, Rows]]:
    """The case with each of several sets of known runs; of the last of every size nothing but times."""
    found = []
    for runs in range(1, MOST_RUNS + 1):
        for number, known in enumerate(known_sets(case, runs, _SETS, seed)):
            shown = without_metrics(case) if number == _SETS - 1 else case
            found.append((shown.seen_at(known), known))
    return found


_UNSEEN = "unseen."
_WEIGHT = "weight."


@dataclass(frozen=True, slots=True, eq=False)
class SharedEncoder:
    """One encoder for all data sets, and the neighbourhood it makes of them."""

    encoder: Encoder
    neighbourhood: Neighbourhood

    def similarity(self, case: Case, known: Rows) -> Similarity:
        """How well something like it is known."""
        return self.neighbourhood.similarity(self.encoder, case, known)

    def to_weights(self) -> tuple[Arrays, Words]:
        near = self.neighbourhood
        arrays: Arrays = {
            **{f"{_WEIGHT}{name}": each for name, each in self.encoder.weights.items()},
            **{f"{_UNSEEN}{name}": each for name, each in near.unseen.items()},
            "scaling.mean": self.encoder.scaling.mean,
            "scaling.deviation": self.encoder.scaling.deviation,
            "embeddings": near.embeddings,
            "owner": near.owner,
            "runs": near.runs,
            "scale": near.scale,
        }
        return arrays, {"names": [list(each) for each in near.names]}

    @classmethod
    def from_weights(cls, arrays: Arrays, words: Words) -> "SharedEncoder":
        """Inverse of `to_weights`; weights of other shapes are refused."""
        weights = {name: arrays[f"{_WEIGHT}{name}"] for name in SHAPES}
        wrong = [name for name, shape in SHAPES.items() if weights[name].shape != shape]
        if wrong:
            raise ValueError(f"the encoder's weights {wrong[0]} have another shape")
        names = tuple((str(corpus), str(name)) for corpus, name in words["names"])
        if len(arrays["owner"]) != len(arrays["embeddings"]) or np.max(arrays["owner"]) >= len(names):
            raise ValueError("the encoder's embeddings belong to nobody")
        return cls(
            Encoder(weights, Scaling(arrays["scaling.mean"], arrays["scaling.deviation"])),
            Neighbourhood(
                arrays["embeddings"],
                arrays["owner"],
                arrays["runs"],
                arrays["scale"],
                names,
                under(_UNSEEN, arrays),
            ),
        )
