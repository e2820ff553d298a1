"""What can be chosen: configurations by their settings and prices."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError, score
from trimtab.predict import SCALES, SETTINGS, Array


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """One row per configuration; `settings` has the columns of `predict.fewshot.SETTINGS`.

    Names are those of the same configurations in cases of other workloads, where there are such. The price is
    that of the whole configuration, all machines, in dollars per second. `words` are what is known of the
    workload before it runs, such as its framework or its data: others whose names have them are more alike.
    """

    names: tuple[str, ...]
    settings: Array
    price_per_second: Array
    words: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        rows = len(self.names)
        if not rows:
            raise BadInputError("there is no configuration to choose from; a space needs one at least")
        if len(set(self.names)) < rows:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise BadInputError(f"the configuration {twice} is there twice; each may come once")
        for field, shape in {"settings": (rows, len(SETTINGS)), "price_per_second": (rows,)}.items():
            values = np.array(getattr(self, field), dtype=float)
            if values.shape != shape:
                raise BadInputError(f"{field} of the space has the shape {values.shape}, not {shape}")
            values.flags.writeable = False
            object.__setattr__(self, field, values)
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
        """The settings that differ, from 0 to 1: those on a scale by their logarithm; unknown is halfway."""
        scales, switches = self.settings[:, : len(SCALES)], self.settings[:, len(SCALES) :]
        powers = np.log2(np.where(scales > 0, scales, np.where(scales == 0, 0.5, np.nan)))
        places = np.concatenate([powers, switches], axis=1)
        known = places[:, ~np.isnan(places).all(axis=0)]
        low, high = np.nanmin(known, axis=0), np.nanmax(known, axis=0)
        differs = high > low
        scaled = (known[:, differs] - low[differs]) / (high - low)[differs]
        return np.where(np.isnan(scaled), 0.5, scaled) if differs.any() else np.zeros((len(self), 1))
