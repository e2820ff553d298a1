"""The configurations of a training job: its batches on so many machines of every shape of a SPEC."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trimtab.collect import Shape, Spec, TrainingJob
from trimtab.core import HOUR, BadInputError, Scalar
from trimtab.predict import Array, Configurations
from trimtab.tune.space import Space


@dataclass(frozen=True, slots=True)
class Setup:
    """A number of workers with a batch each, one on every machine of a shape."""

    shape: Shape
    workers: int
    batch: int

    @property
    def name(self) -> str:
        """Such as "2 × standard-20, batch 64"."""
        return f"{self.workers} × {self.shape.name}, batch {self.batch}"

    @property
    def price_per_second(self) -> float:
        """Dollars of all machines."""
        return self.workers * self.shape.price_per_hour / HOUR

    @property
    def action(self) -> dict[str, Scalar]:
        """Its fields in decisions of the ledger."""
        return {"shape": self.shape.name, "workers": self.workers, "batch_size": self.batch}

    @property
    def plain(self) -> dict[str, Scalar]:
        """Its fields in JSON."""
        return {"shape": self.shape.name, "workers": self.workers, "batch": self.batch}


def configurations(setups: Sequence[Setup]) -> Configurations:
    """Setups as the columns that models learn from."""
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
    """The configurations in which a job can run, and its length in steps."""

    job: TrainingJob
    setups: tuple[Setup, ...]

    @classmethod
    def of(cls, spec: Spec, name: str, fits: Callable[[Setup], bool]) -> "JobSpace":
        """Every configuration of a SPEC for which there is room."""
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

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @cached_property
    def where(self) -> Configurations:
        """The configurations as models see them."""
        return configurations(self.setups)

    @cached_property
    def space(self) -> Space:
        """The configurations as searches see them."""
        names = tuple(setup.name for setup in self.setups)
        return Space(names, self.where.settings(), self.where.price_per_second)

    @cached_property
    def steps(self) -> Array:
        """Steps of the whole job in every configuration."""
        return np.array([float(self.job.steps(setup.batch, setup.workers)) for setup in self.setups])
