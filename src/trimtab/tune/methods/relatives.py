"""Other workloads as possible pictures of this one, over the configurations of a space.

Every other workload is drawn over the space's configurations from its own runs, also where it ran elsewhere:
smoothly in its logarithms, around a trend. It is drawn several times, stretched: a workload twice as large
does on twice as many machines about what this one does here, and where memory suffices moves with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict import SCALES, SETTINGS, Array, Case
from trimtab.tune.space import Space

STRETCHES = (-1.0, -0.5, 0.0, 0.5, 1.0)  # times larger, as powers of two
_TOTALS = 0.6  # how far settings reach, as powers of two: memory and CPUs of all machines together
_SHAPE = 0.8  # memory and price per CPU
_MACHINE = 3.0  # the size of a machine, where all together are as large
_OTHER = 1.0  # any other setting on a scale
_SWITCH = 0.7
_WIGGLE, _TREND, _ROUGH = 0.5, 0.3, 0.01  # variances of a workload's log seconds: smooth, trend, noise
_FAILURE_NOISE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Relatives:
    """A row per picture: log seconds and chance to fail of every configuration."""

    log_seconds: Array
    failing: Array
    case: NDArray[np.intp]  # which of the others it is
    stretch: Array
    shared_words: Array
    completed: NDArray[np.bool_]  # whether that workload ever did; if not, its times mean nothing

    def as_they_are(self) -> NDArray[np.intp]:
        """The pictures that are not stretched, of workloads that completed somewhere."""
        return np.flatnonzero((self.stretch == 0) & self.completed)


def relatives(space: Space, others: Sequence[Case]) -> Relatives:
    """The pictures of all others."""
    stretches = STRETCHES if np.ptp(np.nan_to_num(space.setting("nodes"))) > 0 else (0.0,)
    used = _used(space, others)
    centre = places(space.settings)[:, used].mean(axis=0)
    there = [places(space.settings, stretch)[:, used] - centre for stretch in stretches]
    log_seconds, failing = [], []
    for case in others:
        here = places(case.settings)[:, used] - centre
        exact = _exact(space, case)
        for stretch, targets in zip(stretches, there, strict=True):
            known = exact if stretch == 0 else []
            log_seconds.append(_times(case, here, targets, known))
            failing.append(_failures(case, here, targets, known))
    count = len(stretches)
    return Relatives(
        np.array(log_seconds).reshape(-1, len(space)),
        np.array(failing).reshape(-1, len(space)),
        np.repeat(np.arange(len(others)), count),
        np.tile(stretches, len(others)),
        np.repeat([float(len(space.words & words_of(case))) for case in others], count),
        np.repeat([bool(case.ok.any()) for case in others], count).astype(bool),
    )


def words_of(case: Case) -> frozenset[str]:
    """What its name says: "join-spark-huge" is about join, spark and huge."""
    return frozenset({*case.name.split("-"), case.data} - {""})


def places(settings: Array, stretch: float = 0.0) -> Array:
    """Where configurations are, so that one apart is hardly alike; NaN where something is unknown."""
    column = {name: settings[:, SETTINGS.index(name)] for name in SCALES}
    logs = {name: np.log2(np.where(values > 0, values, np.nan)) for name, values in column.items()}
    machines = np.nan_to_num(logs.pop("nodes")) - stretch
    memory, cpus, price = (logs.pop(name) for name in ("memory_bytes", "cpus", "price_per_hour"))
    in_all = memory if not np.isnan(memory).any() else price  # what is dearer mostly has more memory
    return np.column_stack(
        [
            (machines + in_all) / _TOTALS,
            (machines + cpus) / _TOTALS,
            cpus / _MACHINE,
            (memory - cpus) / _SHAPE,
            (price - cpus) / _SHAPE,
            *(values / _OTHER for values in logs.values()),
            settings[:, len(SCALES) :] / _SWITCH,
        ]
    )


def nearness(first: Array, second: Array) -> Array:
    """1 at the same place, falling as a bell."""
    return np.asarray(np.exp(-0.5 * ((first[:, None] - second[None]) ** 2).sum(axis=-1)))


def trend(first: Array, second: Array) -> Array:
    """Covariance of a plane through the centre, with a slope of about one over all coordinates together."""
    return np.asarray(first @ second.T / max(first.shape[1], 1))


def space_places(space: Space, others: Sequence[Case]) -> Array:
    """The places of the space's configurations around their centre."""
    found = places(space.settings)[:, _used(space, others)]
    return np.asarray(found - found.mean(axis=0))


def _used(space: Space, others: Sequence[Case]) -> NDArray[np.bool_]:
    """Coordinates that are known everywhere and differ somewhere."""
    found = np.vstack(
        [places(settings) for settings in (space.settings, *(case.settings for case in others))]
    )
    return np.asarray(~np.isnan(found).any(axis=0) & (np.ptp(np.nan_to_num(found), axis=0) > 1e-6))


def _exact(space: Space, case: Case) -> list[tuple[int, int]]:
    """Rows of the space and of the case that are the same configuration."""
    row_of = {name: row for row, name in enumerate(case.configurations)}
    return [(row, row_of[name]) for row, name in enumerate(space.names) if name in row_of]


def _times(case: Case, here: Array, there: Array, known: Sequence[tuple[int, int]]) -> Array:
    if not case.ok.any():
        return np.full(len(there), np.nan)
    ran, measured = here[case.ok], np.log(case.seconds[case.ok])
    level = measured.mean()
    among = _WIGGLE * nearness(ran, ran) + _TREND * trend(ran, ran) + _ROUGH * np.eye(len(ran))
    towards = _WIGGLE * nearness(there, ran) + _TREND * trend(there, ran)
    drawn = level + towards @ np.linalg.solve(among, measured - level)
    for row, own in known:
        if case.ok[own]:
            drawn[row] = np.log(case.seconds[own])
    return np.asarray(drawn)


def _failures(case: Case, here: Array, there: Array, known: Sequence[tuple[int, int]]) -> Array:
    failed = (~case.ok).astype(float)
    usual = failed.mean()
    among = nearness(here, here) + _FAILURE_NOISE * np.eye(len(here))
    drawn = np.clip(usual + nearness(there, here) @ np.linalg.solve(among, failed - usual), 0.0, 1.0)
    for row, own in known:
        drawn[row] = failed[own]
    return np.asarray(drawn)
