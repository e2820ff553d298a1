"""Many episodes at once, as a network wants them: of each case some runs are known and others to predict."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.features import Encoder
from trimtab.predict.fewshot.matrix import distances
from trimtab.predict.fewshot.predictor import Rows, known_log_seconds
from trimtab.predict.fewshot.schema import Array, Flags

Inputs = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Episodes with equally many known runs."""

    seen: Inputs
    """(episode, known, feature): the observations."""
    inputs: Inputs
    """(episode, target, feature): the nearest observations side by side, then the target configuration."""
    level: Array
    """(episode,): the mean of the logarithms of the known times."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(Batch):
    """Episodes drawn from training cases, so that the answers are known."""

    log_factor: Inputs
    """(episode, target): log(measured time / mean of the known); 0 where nothing was measured."""
    measured: Flags
    """(episode, target): a case that has fewer runs than were asked for is filled up with unmeasured ones."""


def batch_of(encoder: Encoder, case: Case, known: Rows, places: int) -> Batch:
    """One episode: every configuration of a case as a target, whatever the order of the known."""
    known = np.sort(known)
    log_seconds = known_log_seconds(case, known)
    seen = encoder.observations(case.settings[known], log_seconds, case.metrics[known])[None]
    apart = distances(case.settings, case.settings[known])[None]
    inputs = _inputs(seen, encoder.targets(case.settings)[None], apart, places)
    return Batch(seen.astype(np.float32), inputs, log_seconds.mean(keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Training cases as arrays (case, row, …), to draw without a loop; short ones get unmeasured rows."""

    encoder: Encoder
    runs: Array
    """What `Encoder.runs` makes of each run."""
    targets: Array
    """What `Encoder.targets` makes of each configuration."""
    log_seconds: Array
    """NaN where there is no time."""
    apart: Array
    """(case, row, row): how far two configurations of a case are apart."""

    @classmethod
    def of(cls, encoder: Encoder, cases: Sequence[Case]) -> "Stack":
        shape = len(cases), max(len(case) for case in cases)
        runs = np.zeros((*shape, encoder.run_width))
        targets = np.zeros((*shape, encoder.target_width))
        log_seconds = np.full(shape, np.nan)
        apart = np.zeros((*shape, shape[1]))
        for i, case in enumerate(cases):
            rows = len(case)
            runs[i, :rows] = encoder.runs(case.settings, case.metrics)
            targets[i, :rows] = encoder.targets(case.settings)
            log_seconds[i, :rows] = np.log(case.seconds)
            apart[i, :rows, :rows] = distances(case.settings, case.settings)
        return cls(encoder, runs, targets, log_seconds, apart)

    @property
    def run_counts(self) -> Rows:
        """How many runs of each case have a time."""
        return np.asarray((~np.isnan(self.log_seconds)).sum(axis=1))

    def draw(self, cases: Rows, shots: int, targets: int, places: int, random: np.random.Generator) -> Drawn:
        """An episode of each of these cases, `shots` known runs and `targets` others, all at random.

        Every case needs more runs with a time than `shots`.
        """
        unmeasured = np.isnan(self.log_seconds[cases])
        order = np.argsort(random.random(unmeasured.shape) + unmeasured, axis=1)
        known, wanted = order[:, :shots], order[:, shots : shots + targets]
        case = cases[:, None]
        log_seconds = self.log_seconds[case, known]
        level = log_seconds.mean(axis=1)
        seen = self.encoder.with_times(self.runs[case, known], log_seconds)
        apart = self.apart[cases[:, None, None], wanted[:, :, None], known[:, None]]
        log_factor = self.log_seconds[case, wanted] - level[:, None]
        return Drawn(
            seen=seen.astype(np.float32),
            inputs=_inputs(seen, self.targets[case, wanted], apart, places),
            level=level,
            log_factor=np.nan_to_num(log_factor).astype(np.float32),
            measured=~np.isnan(log_factor),
        )


def input_width(encoder: Encoder, places: int) -> int:
    """How many features `Batch.inputs` has."""
    return places * encoder.observation_width + encoder.target_width


def _inputs(seen: Array, targets: Array, apart: Array, places: int) -> Inputs:
    """The `places` observations nearest to each target, nearest first and 0 where there are fewer, and it."""
    order = np.argsort(apart, axis=-1, kind="stable")[..., :places]
    chosen = np.take_along_axis(seen[:, None], order[..., None], axis=2)
    side_by_side = chosen.reshape(*order.shape[:2], -1)
    empty = places * seen.shape[-1] - side_by_side.shape[-1]
    filled = np.pad(side_by_side, ((0, 0), (0, 0), (0, empty)))
    return np.concatenate([filled, targets], axis=-1).astype(np.float32)
