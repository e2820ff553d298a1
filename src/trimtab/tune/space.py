"""The space that is searched: configurations by their settings and prices, and what trials of them showed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError, score
from trimtab.predict import SCALES, SETTINGS, Array


@dataclass(frozen=True, slots=True)
class Observation:
    """Seconds that the whole workload takes in one configuration, by a trial.

    `fidelity` is the part of a full trial that was run: less than 1 is noisier. If the trial failed (`ok` is
    false), `seconds` is when it ended, or NaN. `metrics` are named as in `predict.fewshot.METRICS`.
    """

    row: int
    seconds: float
    ok: bool = True
    fidelity: float = 1.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.row < 0:
            raise BadInputError(f"row {self.row} is no configuration; rows count from 0")
        if self.ok and not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise BadInputError(
                f"a trial of row {self.row} took {self.seconds:g} seconds; times are above zero"
            )
        if not 0 < self.fidelity <= 1:
            raise BadInputError(
                f"a trial of row {self.row} has fidelity {self.fidelity:g}; it is above 0, up to 1"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """One row per configuration; `settings` has the columns of `predict.fewshot.SETTINGS`.

    Other workloads' cases use the same `names` for the same configurations. The price is dollars per second
    of the whole configuration, all machines. `words` describe the workload before it runs (its framework, its
    data): workloads whose names share them are more alike. `extra` are coordinates of settings that SETTINGS
    does not name; two configurations that are 1 apart in them are hardly alike.
    """

    names: tuple[str, ...]
    settings: Array
    price_per_second: Array
    words: frozenset[str] = frozenset()
    extra: Array | None = None

    def __post_init__(self) -> None:
        rows = len(self.names)
        if not rows:
            raise BadInputError("there is no configuration to choose from; a space needs one at least")
        if len(set(self.names)) < rows:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise BadInputError(f"the configuration {twice} is there twice; each may come once")
        for name, shape in {"settings": (rows, len(SETTINGS)), "price_per_second": (rows,)}.items():
            values = np.array(getattr(self, name), dtype=float)
            if values.shape != shape:
                raise BadInputError(f"{name} of the space has the shape {values.shape}, not {shape}")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        for row in np.flatnonzero(~(self.price_per_second > 0) | np.isinf(self.price_per_second))[:1]:
            raise BadInputError(
                f"{self.names[row]} costs {self.price_per_second[row]:g} dollars per second; "
                "a price is a number above zero"
            )

    def __len__(self) -> int:
        return len(self.names)

    def setting(self, name: str) -> Array:
        """One setting of every configuration."""
        return np.asarray(self.settings[:, SETTINGS.index(name)])

    def values(
        self, objective: str, seconds: ArrayLike, rows: NDArray[np.intp] | slice = slice(None)
    ) -> Array:
        """The objective, lower is better, where the last axis of `seconds` goes over configurations."""
        time = np.asarray(seconds, dtype=float)
        return np.asarray(score(objective, time, time * self.price_per_second[rows]))

    def coordinates(self) -> Array:
        """Settings that differ, scaled to 0..1: those on a scale by their logarithm; unknown is 0.5."""
        scales, switches = self.settings[:, : len(SCALES)], self.settings[:, len(SCALES) :]
        powers = np.log2(np.where(scales > 0, scales, np.where(scales == 0, 0.5, np.nan)))
        places = np.concatenate([powers, switches], axis=1)
        known = places[:, ~np.isnan(places).all(axis=0)]
        low, high = np.nanmin(known, axis=0), np.nanmax(known, axis=0)
        differs = high > low
        scaled = (known[:, differs] - low[differs]) / (high - low)[differs]
        return np.where(np.isnan(scaled), 0.5, scaled) if differs.any() else np.zeros((len(self), 1))


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Observations as columns, and the configurations that are left to try."""

    rows: NDArray[np.intp]  # of trials that completed
    values: Array  # of the objective
    fidelity: Array
    failed: NDArray[np.intp]
    left: NDArray[np.intp]  # not those that failed or had a full trial

    @classmethod
    def of(cls, space: Space, objective: str, observations: Sequence[Observation]) -> "Trials":
        for one in observations:
            if one.row >= len(space):
                raise BadInputError(
                    f"row {one.row} was tried, but there are only {len(space)} configurations"
                )
        done = [one for one in observations if one.ok]
        rows = np.array([one.row for one in done], dtype=np.intp)
        settled = {one.row for one in observations if not one.ok or one.fidelity >= 1}
        return cls(
            rows,
            space.values(objective, [one.seconds for one in done], rows),
            np.array([one.fidelity for one in done], dtype=float),
            np.array([one.row for one in observations if not one.ok], dtype=np.intp),
            np.array([row for row in range(len(space)) if row not in settled], dtype=np.intp),
        )

    @property
    def best(self) -> float:
        """The least value so far; infinite before the first."""
        return float(self.values.min()) if self.values.size else float("inf")
