"""A case: one application with one input in one environment, measured under several configurations."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError
from trimtab.predict.fewshot.schema import METRICS, SETTINGS, Array, Flags


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What was measured of it, one row per configuration; no configuration comes twice.

    `application` is what is left out together in a backtest. A configuration's key is the same in two cases
    exactly when the configuration is. `seconds` is positive wherever the run completed (`ok`); of a run that
    did not, it is when it ended, or NaN. `data` names what it works on, where that is known before it runs:
    cases of equal data have something in common. The arrays are read-only.
    """

    corpus: str
    application: str
    name: str
    environment: str
    configurations: tuple[str, ...]
    settings: Array
    metrics: Array
    seconds: Array
    ok: Flags
    data: str = ""

    def __post_init__(self) -> None:
        rows = len(self.configurations)
        if not rows:
            raise BadInputError(f"{self.label} has no measured configuration")
        if len(set(self.configurations)) < rows:
            raise BadInputError(f"{self.label} has the same configuration twice; average repeats first")
        shapes = {
            "settings": (float, (rows, len(SETTINGS))),
            "metrics": (float, (rows, len(METRICS))),
            "seconds": (float, (rows,)),
            "ok": (bool, (rows,)),
        }
        for field, (kind, shape) in shapes.items():
            values = np.array(getattr(self, field), dtype=kind)
            if values.shape != shape:
                raise BadInputError(f"{self.label}: {field} has the shape {values.shape}, not {shape}")
            if np.isinf(values).any():
                raise BadInputError(f"{self.label}: {field} has an infinite value; unknown is NaN")
            values.flags.writeable = False
            object.__setattr__(self, field, values)
        self._refuse(lambda: self.seconds <= 0, "times are positive")
        self._refuse(lambda: self.ok & np.isnan(self.seconds), "a completed run has a time")

    def _refuse(self, wrong: Callable[[], Flags], law: str) -> None:
        for row in np.flatnonzero(wrong())[:1]:
            where = self.configurations[row]
            raise BadInputError(f"{self.label}, {where}: {self.seconds[row]:g} seconds; {law}")

    def __len__(self) -> int:
        return len(self.configurations)

    @property
    def label(self) -> str:
        return f"{self.corpus}, {self.environment}, {self.application}, {self.name}"

    def setting(self, name: str) -> Array:
        """One setting of every configuration."""
        return np.asarray(self.settings[:, SETTINGS.index(name)])

    def metric(self, name: str) -> Array:
        """One metric of every configuration."""
        return np.asarray(self.metrics[:, METRICS.index(name)])

    def only(self, rows: ArrayLike) -> "Case":
        """The case with these rows: a mask, or indices in the order wanted."""
        index = np.arange(len(self))[np.asarray(rows)]
        return replace(
            self,
            configurations=tuple(self.configurations[i] for i in index),
            settings=self.settings[index],
            metrics=self.metrics[index],
            seconds=self.seconds[index],
            ok=self.ok[index],
        )

    def seen_at(self, known: NDArray[np.intp]) -> "Case":
        """The case as it looks to someone who ran it only there: elsewhere times and metrics are unknown."""
        seen = np.zeros(len(self), dtype=bool)
        seen[known] = True
        return replace(
            self,
            metrics=np.where(seen[:, None], self.metrics, np.nan),
            seconds=np.where(seen, self.seconds, np.nan),
            ok=self.ok & seen,
        )


@dataclass(frozen=True, slots=True)
class Corpus:
    """Cases that were measured together."""

    name: str
    cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        if not self.cases:
            raise BadInputError(f"{self.name} has no case")

    @property
    def applications(self) -> tuple[str, ...]:
        """Every application once, in the order of the cases."""
        return tuple(dict.fromkeys(case.application for case in self.cases))

    @property
    def environments(self) -> tuple[str, ...]:
        """Every environment once, in the order of the cases."""
        return tuple(dict.fromkeys(case.environment for case in self.cases))

    def within(self, *environments: str) -> "Corpus":
        """The cases of these environments."""
        chosen = tuple(case for case in self.cases if case.environment in environments)
        if not chosen:
            wanted, there = " or ".join(environments), ", ".join(self.environments)
            raise BadInputError(f"{self.name} has no case in {wanted}, only in {there}")
        return Corpus(self.name, chosen)

    def completed(self) -> "Corpus":
        """The runs that completed; a case without one drops out."""
        kept = tuple(case.only(case.ok) for case in self.cases if case.ok.any())
        if not kept:
            raise BadInputError(f"{self.name} has no completed run")
        return Corpus(self.name, kept)
