"""Distance of an application from everything learned from, in embedding space (FLASH, section 2).

A distance by itself says little. So applications held out of training are embedded by an encoder trained
without them, and a request's score is the share of those that were nearer than it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.case import Array, Case, Corpus
from trimtab.predict.fewshot.encoder import MOST_RUNS, SHAPES, Encoder, EpisodeTable, Scaling, Single
from trimtab.predict.fewshot.encoder_training import Without, known_sets, leaving_out, without_metrics
from trimtab.predict.fewshot.predictor import Arrays, Rows, Words, under

_SETS = 3  # of known runs, that stand for a case; of one of them no metrics are known
_NAMED = 3  # applications that are named as most alike
_QUANTILES = 200


@dataclass(frozen=True, slots=True)
class Similarity:
    """Nearness of an application to those of its data set that were learned from."""

    own: float  # distance to the nearest
    score: float  # share of the held-out applications that were nearer
    alike: tuple[str, ...]  # the nearest, nearest first


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """Embeddings of everything learned from, and the distances of held-out applications from it."""

    embeddings: NDArray[np.float16]  # (sets of known runs, EMBEDDING), divided by `scale`
    owner: NDArray[np.int32]  # of every set the position in `names`
    runs: NDArray[np.uint8]  # known in every set
    scale: Single  # of every number of an embedding
    names: tuple[tuple[str, str], ...]  # data set and case
    unseen: Mapping[str, Single]  # by data set: (MOST_RUNS, quantiles) of unseen applications' distances

    @classmethod
    def of(cls, encoder: Encoder, corpora: Sequence[Corpus], seed: int) -> "Neighbourhood":
        """Embeddings of all cases; the distances of held-out ones are not known yet."""
        chosen = [case for corpus in corpora for case in corpus.cases]
        sets = [
            (at, shown, known) for at, case in enumerate(chosen) for shown, known in _known_sets(case, seed)
        ]
        embeddings = encoder.embeddings(
            EpisodeTable.join([EpisodeTable.of(case, known, np.array([0])) for _, case, known in sets])
        )
        scale = np.maximum(embeddings.std(axis=0), 1e-3)
        return cls(
            (embeddings / scale).astype(np.float16),
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
        nearest = np.full(len(self.names), np.inf, dtype=np.float32)
        np.minimum.at(nearest, self.owner[same], np.sqrt((apart**2).mean(axis=1)))
        return nearest

    def similarity(self, encoder: Encoder, case: Case, known: Rows) -> Similarity:
        """Similarity of a request to the known applications of its data set."""
        nearest = self.distances(encoder.embedding(case, known), len(known))
        own = np.array([corpus == case.corpus for corpus, _ in self.names])
        of_own = np.where(own, nearest, np.inf)
        distance, alike = float(of_own.min()), np.argsort(of_own, kind="stable")[:_NAMED]
        quantiles = self.unseen[case.corpus][min(len(known), MOST_RUNS) - 1]
        score = float(np.interp(distance, quantiles, np.linspace(0.0, 1.0, len(quantiles))))
        return Similarity(
            distance, score, tuple(self.names[at][1] for at in alike if np.isfinite(of_own[at]))
        )


def unseen_distances(
    encoder: Encoder, corpora: Sequence[Corpus], without: Without, seed: int
) -> dict[str, tuple[Array, ...]]:
    """By data set and number of known runs: distances of the applications in `without` from its others."""
    training = Neighbourhood.of(encoder, leaving_out(corpora, without), seed)
    by_corpus = {}
    for corpus in corpora:
        own = np.array([name == corpus.name for name, _ in training.names])
        held_out = without.get(corpus.name, frozenset()) if own.any() else frozenset()
        by_runs: list[list[float]] = [[] for _ in range(MOST_RUNS)]
        for case in (case for case in corpus.cases if case.application in held_out):
            for shown, known in _known_sets(case, seed):
                nearest = training.distances(encoder.embedding(shown, known), len(known))
                by_runs[len(known) - 1].append(float(nearest[own].min()))
        by_corpus[corpus.name] = tuple(np.array(distances) for distances in by_runs)
    return by_corpus


def distance_quantiles(parts: Sequence[Mapping[str, tuple[Array, ...]]]) -> dict[str, Single]:
    """Quantiles of the distances of all groups left out in turn, by number of known runs.

    Where no application has so many runs and one to spare, distances with fewer runs count.
    """
    levels = np.linspace(0.0, 1.0, _QUANTILES)
    quantiles = {}
    for name in parts[0]:
        by_runs = [np.concatenate([part[name][at] for part in parts]) for at in range(MOST_RUNS)]
        usable = [distances for distances in by_runs if distances.size]
        if usable:
            rows = [np.quantile(distances if distances.size else usable[-1], levels) for distances in by_runs]
            quantiles[name] = np.array(rows, dtype=np.float32)
    return quantiles


def _known_sets(case: Case, seed: int) -> list[tuple[Case, Rows]]:
    """The case with each of several sets of known runs; the last of every size has times only."""
    sets = []
    for runs in range(1, MOST_RUNS + 1):
        for number, known in enumerate(known_sets(case, runs, _SETS, seed)):
            shown = without_metrics(case) if number == _SETS - 1 else case
            sets.append((shown.known_at(known), known))
    return sets


_UNSEEN = "unseen."
_WEIGHT = "weight."
_ARRAYS = ("embeddings", "owner", "runs", "scale")


@dataclass(frozen=True, slots=True, eq=False)
class SharedEncoder:
    """One encoder for all data sets, and their embeddings."""

    encoder: Encoder
    neighbourhood: Neighbourhood

    def similarity(self, case: Case, known: Rows) -> Similarity:
        return self.neighbourhood.similarity(self.encoder, case, known)

    def to_weights(self) -> tuple[Arrays, Words]:
        near = self.neighbourhood
        arrays: Arrays = {
            **{f"{_WEIGHT}{name}": weights for name, weights in self.encoder.weights.items()},
            **{f"{_UNSEEN}{name}": quantiles for name, quantiles in near.unseen.items()},
            "scaling.mean": self.encoder.scaling.mean,
            "scaling.deviation": self.encoder.scaling.deviation,
            **{name: getattr(near, name) for name in _ARRAYS},
        }
        return arrays, {"names": [list(pair) for pair in near.names]}

    @classmethod
    def from_weights(cls, arrays: Arrays, words: Words) -> "SharedEncoder":
        """Inverse of `to_weights`; weights of other shapes are refused."""
        weights = {name: arrays[f"{_WEIGHT}{name}"] for name in SHAPES}
        wrong = [name for name, shape in SHAPES.items() if weights[name].shape != shape]
        if wrong:
            raise ValueError(f"the encoder's weights {wrong[0]} have another shape")
        names = tuple((str(corpus), str(name)) for corpus, name in words["names"])
        if len(arrays["owner"]) != len(arrays["embeddings"]) or np.max(arrays["owner"]) >= len(names):
            raise ValueError("the encoder's embeddings do not match their applications")
        return cls(
            Encoder(weights, Scaling(arrays["scaling.mean"], arrays["scaling.deviation"])),
            Neighbourhood(
                **{name: arrays[name] for name in _ARRAYS}, names=names, unseen=under(_UNSEEN, arrays)
            ),
        )
