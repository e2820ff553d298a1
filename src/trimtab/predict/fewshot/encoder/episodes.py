"""Episodes to learn from: an application in an environment, some of its runs known, others to predict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Array, Case, Corpus, Rows
from trimtab.predict.fewshot.encoder.inputs import MOST_RUNS, Seen

_FORGETFUL = 0.4  # part of the episodes with metrics taken away: users do not always have them
_KEPT = (0.0, 0.0, 0.5, 0.8)  # parts of the metrics that are left then
_FURTHEST = 4.0  # log seconds; a departure beyond that only disturbs


Without = Mapping[str, frozenset[str]]  # applications that have no part, by data set


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """Many episodes of one data set, with what was measured at the targets."""

    name: str
    seen: Seen
    departure: Array  # (episodes, targets), log seconds from the anchor

    def __len__(self) -> int:
        return len(self.departure)


def draw(corpus: Corpus, count: int, targets: int, seed: int) -> Episodes:
    """`count` episodes of a data set, its cases in turn."""
    measured_in = [(case, np.flatnonzero(~np.isnan(case.seconds))) for case in corpus.cases]
    usable = [(case, rows) for case, rows in measured_in if len(rows) > 1]
    if not usable:
        raise BadInputError(f"{corpus.name} has no application with two runs to learn from")
    random = np.random.default_rng([seed, *corpus.name.encode()])
    seen, departures = list[Seen](), list[Array]()
    for number in range(count):
        case, measured = usable[number % len(usable)]
        known, wanted = _split(measured, targets, random)
        shown = _forgotten(case, random) if random.random() < _FORGETFUL else case
        seen.append(Seen.of(shown.seen_at(known), known, wanted))
        departures.append(np.log(case.seconds[wanted]) - seen[-1].anchor[0])
    return Episodes(corpus.name, Seen.join(seen), np.clip(np.array(departures), -_FURTHEST, _FURTHEST))


def leaving_out(corpora: Sequence[Corpus], without: Without) -> list[Corpus]:
    """The data sets without these applications; one that has no others drops out."""
    left = [
        (corpus.name, tuple(c for c in corpus.cases if c.application not in without.get(corpus.name, ())))
        for corpus in corpora
    ]
    return [Corpus(name, cases) for name, cases in left if cases]


def known_sets(case: Case, runs: int, count: int, seed: int) -> Iterator[Rows]:
    """Sets of so many known runs of a case, with one left to predict; the same for the same seed."""
    measured = np.flatnonzero(~np.isnan(case.seconds))
    random = np.random.default_rng([seed, runs, *case.label.encode()])
    for _ in range(count if len(measured) > runs else 0):
        yield np.sort(random.choice(measured, runs, replace=False))


def without_metrics(case: Case) -> Case:
    """The case as someone knows it who only took the time."""
    return replace(case, metrics=np.full_like(case.metrics, np.nan))


def _split(measured: Rows, targets: int, random: np.random.Generator) -> tuple[Rows, Rows]:
    """One to three known rows, and `targets` of the others; where there are fewer, some come again."""
    order = random.permutation(measured)
    runs = int(random.integers(1, min(MOST_RUNS, len(measured) - 1) + 1))
    return np.sort(order[:runs]), np.resize(order[runs:], targets)


def _forgotten(case: Case, random: np.random.Generator) -> Case:
    kept = random.random(case.metrics.shape[1]) < random.choice(_KEPT)
    return replace(case, metrics=np.where(kept, case.metrics, np.nan))


def scaling_rows(parts: Sequence[Episodes]) -> Array:
    """Settings, metrics and log seconds of known runs, as many from every data set."""
    fewest = min(len(part) for part in parts)
    rows = []
    for part in parts:
        seen = part.seen
        both = np.concatenate([seen.runs, seen.log_seconds[..., None]], axis=2)[:fewest]
        rows.append(both[seen.is_run[:fewest] > 0])
    return np.concatenate(rows)
