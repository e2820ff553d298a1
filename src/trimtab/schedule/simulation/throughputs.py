"""Steps per second of training jobs on three accelerators: the data set `gpu-throughput`, from Gavel."""

import csv
import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule.cluster import Cluster, Floats

JobClass = tuple[str, float | None, int]
"""A model, its batch per accelerator (None where it has none), and on how many accelerators it runs."""

LARGEST = 8
"""On how many accelerators speeds were measured; a step on more is believed to take as long as on so many."""


def read_throughputs(folder: Path, source: str = "simulation") -> dict[tuple[JobClass, str], float]:
    """Steps per second by class and accelerator, of jobs alone on a server; what does not fit is left out."""
    path = folder / "gavel_throughputs.csv.gz"
    found: dict[tuple[JobClass, str], float] = {}
    try:
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                if row["source"] != source or row["consolidated"] != "True" or row["other_model"]:
                    continue
                rate = float(row["steps_per_s"])
                if rate > 0:
                    batch = float(row["batch_size"]) if row["batch_size"] else None
                    found[(row["model"], batch, int(row["num_gpus"])), row["accelerator"]] = rate
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no {path}; --data names the folder that holds gpu-throughput"
        ) from None
    except (OSError, KeyError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from None
    return found


def rates(
    throughputs: Mapping[tuple[JobClass, str], float], classes: Iterable[JobClass], cluster: Cluster
) -> dict[JobClass, Floats]:
    """Steps per second of each class in every shape; 0 in shapes of another size, and where it cannot be."""
    rows = {}
    for model, batch, gpus in classes:
        row = np.zeros(len(cluster.shapes))
        for index, shape in enumerate(cluster.shapes):
            if shape.workers == gpus:
                kind = cluster.groups[shape.group].accelerator
                row[index] = throughputs.get(((model, batch, min(gpus, LARGEST)), kind), 0.0)
        rows[model, batch, gpus] = row
    return rows
