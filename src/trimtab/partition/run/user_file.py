"""What the file that builds a model may define for training it."""

from dataclasses import dataclass
from types import ModuleType

from trimtab.partition.run.samples import BatchFunction, LossFunction, mean_of_squares


@dataclass(frozen=True, slots=True)
class UserFunctions:
    """`batch(samples, generator)` gives inputs, or inputs and targets; `loss(outputs, targets)` a number."""

    batch: BatchFunction | None
    loss: LossFunction


def user_functions(source: ModuleType) -> UserFunctions:
    """What the module that a builder stands in defines; our loss where it has none."""
    return UserFunctions(getattr(source, "batch", None), getattr(source, "loss", mean_of_squares))
