"""Small made-up cases, and files to read badly."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.predict.fewshot.case import Case, metrics_table, settings_table

SIZES = (128, 256, 512, 1024, 2048, 3008)


@pytest.fixture(scope="session")
def make_case() -> Callable[..., Case]:
    """A function under as many memory sizes as times are given."""

    def make(seconds: Sequence[float] = (8.0, 4.0, 2.0, 1.0), **fields: Any) -> Case:
        rows = len(seconds)
        sizes = SIZES[:rows]
        given: dict[str, Any] = {
            "corpus": "made up",
            "application": "resize",
            "name": "resize-0",
            "environment": "lambda",
            "configurations": tuple(f"{size}MB" for size in sizes),
            "settings": settings_table(rows, memory_bytes=np.array(sizes) * 2.0**20, cpus=1.0),
            "metrics": metrics_table(rows, cpu_user=np.linspace(0.2, 0.9, rows)),
            "seconds": np.array(seconds, dtype=float),
            "ok": ~np.isnan(np.array(seconds, dtype=float)),
        }
        return Case(**{**given, **fields})

    return make


@pytest.fixture(scope="session")
def write_csv() -> Callable[..., Path]:
    """A CSV file of rows that are mappings with the same keys; a column named in `without` is left out."""

    def write(path: Path, rows: Sequence[Mapping[str, object]], without: str = "") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = [name for name in rows[0] if name != without]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write
