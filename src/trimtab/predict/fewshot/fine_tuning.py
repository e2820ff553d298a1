"""Light fine-tuning on a request's own runs, for applications that are unlike all known ones.

Each run is predicted from the others; the errors teach an offset to the head's last layer, by a few gradient
steps. Their number is decided on held-out runs: often none.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.encoder import (
    CAUTION,
    LEVELS,
    MOST_RUNS,
    Encoder,
    EpisodeTable,
    Single,
    spread_out,
)
from trimtab.predict.fewshot.predictor import Fitted, PredictiveSample, Rows

STEPS = (0, 1, 2, 4, 8, 16)
_MIDDLE = len(LEVELS) // 2


@dataclass(frozen=True, slots=True, eq=False)
class _Lessons:
    """Every known run, predicted from some of the others."""

    run: Rows  # which was predicted
    hidden: Array  # (lessons, width), the last layer, with a constant
    missed: Array  # log seconds by which the median was too low

    @classmethod
    def of(cls, encoder: Encoder, case: Case, known: Rows) -> "_Lessons":
        pairs = _pairs(known)
        runs = np.array([run for run, _ in pairs])
        episodes = EpisodeTable.join(
            [EpisodeTable.of(case.known_at(others), others, np.array([run])) for run, others in pairs]
        )
        median = encoder.departures(episodes)[:, 0, _MIDDLE]
        missed = np.log(case.seconds[runs]) - episodes.anchor[:, 0] - median
        return cls(runs, _with_constant(encoder.hidden(episodes)[:, 0]), missed)

    def offset(self, steps: int, chosen: Array) -> Array:
        """Gradient steps from zero on the squared error of the chosen lessons, as large as is stable."""
        rows, missed = self.hidden[chosen], self.missed[chosen]
        offset = np.zeros(rows.shape[1])
        size = 1.0 / max(float(np.linalg.eigvalsh(rows @ rows.T)[-1]), 1e-9)
        for _ in range(steps):
            offset += size * rows.T @ (missed - rows @ offset)
        return offset

    def best_steps(self) -> tuple[int, float]:
        """Number of steps that best predicts held-out runs, and their mean absolute error in log seconds."""
        scores = {}
        for steps in STEPS:
            errors = []
            for run in np.unique(self.run):
                tested = self.run == run
                rest = self.missed[tested] - self.hidden[tested] @ self.offset(steps, ~tested)
                errors.append(float(np.abs(rest).mean()))
            scores[steps] = float(np.mean(errors))
        best = min(scores, key=lambda steps: (scores[steps], steps))
        return best, scores[best]


@dataclass(frozen=True, slots=True, eq=False)
class Adapted:
    """An encoder with an offset learned from one application's runs."""

    encoder: Encoder
    offset: Array
    steps: int
    missed: float  # mean absolute error in log seconds on held-out runs

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self.spread(case, known).point(CAUTION))

    def spread(self, case: Case, known: Rows) -> PredictiveSample:
        episode = EpisodeTable.of(case, known)
        moved = _with_constant(self.encoder.hidden(episode)[0]) @ self.offset
        samples = (episode.anchor[0] + moved)[:, None] + self.encoder.departures(episode)[0]
        return PredictiveSample.of(samples, np.ones_like(samples))


def adapt(encoder: Encoder, case: Case, known: Rows) -> Adapted:
    """Fine-tune on the known runs, of which there must be two; of many, on a few that lie apart."""
    lessons = _Lessons.of(encoder, case, spread_out(case, known))
    steps, missed = lessons.best_steps()
    return Adapted(encoder, lessons.offset(steps, np.ones(len(lessons.run), dtype=bool)), steps, missed)


def missed_by(rule: Fitted, case: Case, known: Rows) -> float:
    """Mean absolute log error of another predictor on the same runs, each predicted from the same others."""
    by_run: dict[int, list[float]] = {}
    for run, others in _pairs(spread_out(case, known)):
        answer = np.log(rule.predict(case.known_at(others), others)[run])
        by_run.setdefault(run, []).append(abs(float(np.log(case.seconds[run]) - answer)))
    return float(np.mean([np.mean(errors) for errors in by_run.values()]))


def _pairs(known: Rows) -> list[tuple[int, Rows]]:
    """Every known run with every small set of the others."""
    return [
        (run, np.array(others))
        for run in known.tolist()
        for count in range(1, MOST_RUNS + 1)
        for others in combinations([k for k in known.tolist() if k != run], count)
    ]


def _with_constant(hidden: Single) -> Array:
    return np.concatenate([hidden, np.ones((len(hidden), 1))], axis=1, dtype=np.float64)
