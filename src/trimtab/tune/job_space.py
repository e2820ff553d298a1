"""The configurations of a training job: its batches on so many machines of every shape of a SPEC."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trimtab.collect import Shape, Spec, TrainingJob
from trimtab.core import HOUR, BadInputError
from trimtab.predict import Array, Configurations
from trimtab.tune.space import Space


@dataclass(frozen=True, slots=True)
class Setup:
    """So many workers with a batch each, one on every machine of a shape."""

    shape: Shape
    workers: int
    batch: int

    @property
    def name(self) -> str:
        """As people read it."""
        return f"{self.workers} × {self.shape.name}, batch {self.batch}"

    @property
    def price_per_second(self) -> float:
        """Dollars of all machines."""
        return self.workers * self.shape.price_per_hour / HOUR


def configurations(setups: Sequence[Setup]) -> Configurations:
    """Setups as a model sees them."""
    return Configurations(
        tuple(setup.shape.name for setup in setups),
        np.array([setup.shape.cpus for setup in setups]),
        np.array([setup.shape.memory for setup in setups]),
        np.array([float(setup.workers) for setup in setups]),
        np.array([float(setup.batch) for setup in setups]),
        np.array([setup.shape.price_per_hour for setup in setups]),
    )


@dataclass(frozen=True)
class JobSpace:
    """What a job can be run on, and how long it is."""

    job: TrainingJob
    setups: tuple[Setup, ...]

    @classmethod
    def of(cls, spec: Spec, name: str, fits: Callable[[Setup], bool]) -> "JobSpace":
        """All that a SPEC lets choose and that there is room for."""
        job = spec.job(name)
        setups = [
            Setup(shape, workers, batch)
            for workers in spec.workers
            for shape in spec.shapes
            for batch in job.batches
        ]
        having = tuple(setup for setup in setups if fits(setup))
        if not having:
            raise BadInputError(f"there is room for none of {name}'s {len(setups)} configurations")
        return cls(job, having)

    @cached_property
    def where(self) -> Configurations:
        """As a model sees it."""
        return configurations(self.setups)

    @cached_property
    def space(self) -> Space:
        """As a search sees it."""
        names = tuple(setup.name for setup in self.setups)
        return Space(names, self.where.settings(), self.where.price_per_second)

    @cached_property
    def steps(self) -> Array:
        """How many steps the whole job takes in every configuration."""
        return np.array([float(self.job.steps(setup.batch, setup.workers)) for setup in self.setups])
