"""The constants of single operations, from parts of models that were timed on a GPU."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator
from trimtab.core import BadInputError
from trimtab.predict.cost.constants import Device, rates
from trimtab.predict.cost.demand import is_half
from trimtab.predict.cost.fit import fit_to
from trimtab.predict.cost.operations import OperationConstants, Operations, joined, pass_seconds

BUNDLED_STAGES = Path(str(files("trimtab.predict") / "data" / "gpu-stages"))
"""Measured parts of models that the shipped constants of single operations were fitted to."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    """A part of a model that was timed: its operations by kind, and seconds of both passes."""

    model: str
    precision: str
    asked: Operations
    forward: float
    backward: float
    memory: float
    predicted_memory: float


def read_stages(folder: Path) -> list[MeasuredStage]:
    """The rows of `stages.csv`; see its README for the columns."""
    path = folder / "stages.csv"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_stage(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read as timed stages: {error}") from None


def _stage(row: dict[str, str]) -> MeasuredStage:
    kinds = [name.removesuffix("_calls") for name in row if name.endswith("_calls")]
    samples = float(row["samples"])

    def column(name: str, factor: float = 1.0) -> Array:
        return np.array([float(row[f"{kind}_{name}"]) * factor for kind in kinds])

    return MeasuredStage(
        model=row["model"],
        precision=row["precision"],
        asked=Operations(
            kinds=np.array(kinds),
            calls=column("calls"),
            flop=column("flop", samples),
            traffic=column("traffic", samples),
            weight_bytes=column("parameters", 4.0),
        ),
        forward=float(row["forward_ms"]) / 1e3,
        backward=float(row["backward_ms"]) / 1e3,
        memory=float(row["memory_mb"]) * 1e6,
        predicted_memory=float(row["predicted_memory_mb"]) * 1e6,
    )


def fit_operations(stages: Sequence[MeasuredStage], device: Accelerator) -> OperationConstants:
    """The constants that come closest to both passes of all stages, and to their sum."""
    columns = _Stacked(stages, device)
    truth = np.array([[each.forward, each.backward, each.forward + each.backward] for each in stages])

    def predict(constants: OperationConstants) -> Array:
        forward, backward = columns.seconds(constants)
        return np.concatenate([forward, backward, forward + backward])

    return fit_to(OperationConstants, predict, truth.T.ravel())


def predict_stages(
    stages: Sequence[MeasuredStage], device: Accelerator, constants: OperationConstants
) -> Array:
    """Seconds of both passes of every stage together."""
    forward, backward = _Stacked(stages, device).seconds(constants)
    return forward + backward


class _Stacked:
    """All stages' operations in one go."""

    def __init__(self, stages: Sequence[MeasuredStage], device: Accelerator) -> None:
        lengths = [len(each.asked.calls) for each in stages]
        self.stage = np.repeat(np.arange(len(stages)), lengths)
        self.asked = Operations(
            *(
                np.concatenate([getattr(each.asked, name) for each in stages])
                for name in ("kinds", "calls", "flop", "traffic", "weight_bytes")
            )
        )
        known = {p: rates(device.peak, device.memory_bandwidth, p) for p in {s.precision for s in stages}}
        each = [known[stage.precision] for stage in stages]
        self.half = np.array([float(is_half(stage.precision)) for stage in stages])[self.stage]
        self.device = Device(
            *(
                np.array([getattr(one, name) for one in each])[self.stage]
                for name in ("conv_peak", "matmul_peak", "full_peak", "bandwidth")
            )
        )

    def seconds(self, constants: OperationConstants) -> tuple[Array, Array]:
        """Forward and backward seconds of every stage."""
        found = []
        for backward in (False, True):
            each = pass_seconds(self.asked, self.device, self.half, constants, backward)
            host, device = (np.bincount(self.stage, side).astype(float) for side in (each.host, each.device))
            found.append(np.asarray(joined(host, device, constants.sharpness)))
        return found[0], found[1]
