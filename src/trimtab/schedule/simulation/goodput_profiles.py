"""Measured applications: step times by placement, and gradient statistics by batch and epoch.

Read from the tables `placements`, `scalability` and `validation` of the data set `goodput` (measurements
published with Pollux and Sia). Progress is counted in iterations at the smallest batch.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule.cluster import Floats

_ROUNDING = 1e-9


class Between:
    """Linear interpolation in the Delaunay tetrahedra between points; the nearest points' mean outside.

    In plain sums and products: solving thousands of tiny systems would start a thread on every core.
    """

    def __init__(self, points: Floats, values: Floats) -> None:
        from scipy.spatial import Delaunay

        self._points, self._values = points, values
        simplices = Delaunay(points).simplices
        corners = points[simplices]
        a, b, c = (corners[:, corner] - corners[:, 3] for corner in range(3))
        across = np.stack((np.cross(b, c), np.cross(c, a), np.cross(a, b)), axis=1)
        volume = (a * across[:, 0]).sum(axis=1)
        thick = np.abs(volume) > _ROUNDING
        self._corners, self._origin = simplices[thick], corners[thick, 3]
        self._weights = across[thick] / volume[thick, None, None]

    def __call__(self, where: Floats) -> Floats:
        """The value at a point."""
        first = np.einsum("tij,tj->ti", self._weights, where - self._origin)
        weights = np.column_stack((first, 1.0 - first.sum(axis=1)))
        within = weights.min(axis=1)
        best = int(within.argmax())
        if within[best] < -_ROUNDING:
            distance = ((self._points - where) ** 2).sum(axis=1)
            return np.asarray(self._values[distance == distance.min()].mean(axis=0))
        return np.asarray((weights[best][:, None] * self._values[self._corners[best]]).sum(axis=0))


KINDS = {"t4": "aws", "rtx2080ti": "rtx", "a100": "dgx-ext", "v100": "azure", "quadro6000": "quad"}
"""Accelerators, and their names in the tables."""


@dataclass(frozen=True, slots=True)
class Nature:
    """Facts of an application that the tables lack: epochs, seconds to restart, slowdown."""

    epochs: int
    restart: float
    slowdown: float


NATURES = {
    "cifar10": Nature(100, 50.0, 1.8),
    "bert": Nature(2, 120.0, 1.2),
    "deepspeech2": Nature(80, 25.0, 1.2),
    "yolov3": Nature(50, 80.0, 1.2),
    "imagenet": Nature(90, 250.0, 1.2),
    "ncf": Nature(10, 15.0, 1.5),
}


@dataclass
class KindTable:
    """Measured (local batch, step seconds, sync seconds) of one application on one accelerator."""

    by_form: dict[tuple[int, ...], Floats]
    points: Floats
    values: Floats
    _steps: dict[tuple[tuple[int, ...], int], tuple[float, float]] = field(default_factory=dict)

    def step(self, form: tuple[int, ...], batch: int) -> tuple[float, float]:
        """Seconds of one step and of its synchronization, with the workers of `form` on each node."""
        key = (form, batch)
        if key not in self._steps:
            table = self.by_form.get(_rotated(form))
            if table is not None:
                step = float(np.interp(batch, table[:, 0], table[:, 1]))
                sync = float(np.interp(batch, table[:, 0], table[:, 2]))
            else:
                point = np.array([min(len(form), 16), sum(form), batch], dtype=float)
                step, sync = self._between(point).tolist()
            self._steps[key] = (step, sync)
        return self._steps[key]

    def largest_batch(self, form: tuple[int, ...]) -> int:
        """The largest local batch measured with this form; of all forms where it was not measured."""
        table = self.by_form.get(_rotated(form))
        if table is not None:
            return int(table[-1, 0])
        nodes, workers = len(form), sum(form)
        larger = self.points[(self.points[:, 0] >= min(nodes, 16)) & (self.points[:, 1] >= workers)]
        return int((larger if len(larger) else self.points)[:, 2].max())

    @cached_property
    def batches(self) -> tuple[int, int]:
        """The smallest and largest local batch measured."""
        smallest = min(table[0, 0] for table in self.by_form.values())
        return int(smallest), int(max(table[-1, 0] for table in self.by_form.values()))

    @cached_property
    def one_worker(self) -> float:
        """Samples per second of one worker with the largest batch."""
        alone = self.by_form[(1,)]
        return float(alone[-1, 0] / alone[:, 1].max())

    @cached_property
    def _between(self) -> Between:
        return Between(self.points, self.values)


@dataclass
class MeasuredApplication:
    """One application: step times on each accelerator, and gradient statistics by epoch and batch."""

    name: str
    nature: Nature
    kinds: dict[str, KindTable]
    batches: Floats
    squares: Floats
    variances: Floats
    milestones: Floats
    """Progress at the end of each epoch."""
    _gradients: dict[tuple[float, int], tuple[float, float]] = field(default_factory=dict)

    @property
    def smallest(self) -> int:
        """The batch at which progress is counted."""
        return int(self.batches[0])

    @property
    def largest(self) -> int:
        """The largest batch."""
        return int(self.batches[-1])

    def gradient(self, batch: float, epoch: int) -> tuple[float, float]:
        """The gradient's square and variance in an epoch, linear between batches that were measured."""
        key = (batch, epoch)
        if key not in self._gradients:
            square = float(np.interp(batch, self.batches, self.squares[epoch]))
            variance = float(np.interp(batch, self.batches, self.variances[epoch]))
            self._gradients[key] = (square, variance)
        return self._gradients[key]


def read_profiles(folder: Path) -> dict[str, MeasuredApplication]:
    """All applications of the data set `goodput` in this folder."""
    try:
        return _read(folder)
    except (KeyError, ValueError, IndexError) as error:
        raise BadInputError(f"the tables in {folder} do not have the expected content: {error!r}") from None


def _read(folder: Path) -> dict[str, MeasuredApplication]:
    placements = _grouped(folder / "placements.csv.gz")
    scalability = _grouped(folder / "scalability.csv.gz")
    validation: dict[str, dict[int, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(folder / "validation.csv.gz"):
        validation[row["application"]][int(row["batch_size"])].append(row)
    return {
        name: _application(name, nature, placements, scalability, validation[name])
        for name, nature in NATURES.items()
        if name in validation
    }


def _application(
    name: str,
    nature: Nature,
    placements: dict[tuple[str, str], list[dict[str, str]]],
    scalability: dict[tuple[str, str], list[dict[str, str]]],
    validation: dict[int, list[dict[str, str]]],
) -> MeasuredApplication:
    kinds = {
        kind: _kind_table(placements[name, called], scalability.get((name, called), []))
        for kind, called in KINDS.items()
        if (name, called) in placements
    }
    batches = sorted(validation)
    for rows in validation.values():
        rows.sort(key=lambda row: int(row["epoch"]))
    epochs = min(nature.epochs, *(len(rows) for rows in validation.values()))

    def column(key: str) -> Floats:
        return np.array([[float(validation[b][e][key]) for b in batches] for e in range(epochs)])

    return MeasuredApplication(
        name=name,
        nature=nature,
        kinds=kinds,
        batches=np.array(batches, dtype=float),
        squares=column("grad_sqr"),
        variances=column("grad_var"),
        milestones=column("progress").min(axis=1),
    )


def _kind_table(placements: list[dict[str, str]], scalability: list[dict[str, str]]) -> KindTable:
    by_form: dict[tuple[int, ...], list[tuple[float, float, float]]] = defaultdict(list)
    means: dict[tuple[float, float, float], list[tuple[float, float]]] = defaultdict(list)
    for row in placements:
        batch, step, sync = (float(row[key]) for key in ("local_bsz", "step_time_s", "sync_time_s"))
        by_form[tuple(map(int, row["placement"]))].append((batch, step, sync))
        means[float(row["num_nodes"]), float(row["num_replicas"]), batch].append((step, sync))
    for row in scalability:
        key = (float(row["num_nodes"]), float(row["num_replicas"]), float(row["local_bsz"]))
        if key not in means:
            means[key].append((float(row["step_time_s"]), float(row["sync_time_s"])))
    return KindTable(
        {form: np.array(sorted(rows)) for form, rows in by_form.items()},
        np.array(list(means)),
        np.array([np.mean(values, axis=0) for values in means.values()]),
    )


def _rotated(form: tuple[int, ...]) -> tuple[int, ...]:
    """Forms that are rotations of one another count as one; the tables hold the smallest."""
    return min(form[i:] + form[:i] for i in range(len(form)))


def _grouped(path: Path) -> dict[tuple[str, str], list[dict[str, str]]]:
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in _rows(path):
        groups[row["application"], row["gpu_type"]].append(row)
    return groups


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with gzip.open(path, "rt", newline="") as file:
            yield from csv.DictReader(file)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no file {path}; name the folder that holds goodput with --data"
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from None
