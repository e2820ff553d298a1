"""The measurements as a file: one row per line, appended as they come, never half an application."""

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from trimtab.core import BadInputError, StorageError
from trimtab.kernel import write_whole
from trimtab.observe.functions.application import Application
from trimtab.observe.functions.measure import COLUMNS, Measurement


class MeasurementFile:
    """A CSV file that grows by one application at a time and knows which it has."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def finished(self, sizes: int) -> set[tuple[str, str]]:
        """Which (environment, application) have a row for each of so many sizes.

        What a kill cut off is dropped from the file, so that the application is measured again.
        """
        if not self.path.exists():
            return set()
        text = self.path.read_text()
        lines = text.splitlines(keepends=True)
        if not lines or lines[0].rstrip("\n").split(",") != list(COLUMNS):
            raise BadInputError(f"{self.path} is not a file of function measurements; name another one")
        rows = [line for line in lines[1:] if line.endswith("\n") and line.count(",") == len(COLUMNS) - 1]
        keys = [tuple(line.split(",", 2)[:2]) for line in rows]
        counts = Counter(keys)
        whole = [line for line, key in zip(rows, keys, strict=True) if counts[key] >= sizes]
        if len(whole) != len(lines) - 1:
            write_whole(self.path, "".join([lines[0], *whole]))
        return {(key[0], key[1]) for key, count in counts.items() if count >= sizes}

    def append(self, rows: Sequence[Measurement]) -> None:
        """Add an application's rows, down to the disk."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        if not self.path.exists() or self.path.stat().st_size == 0:
            writer.writeheader()
        for row in rows:
            writer.writerow({name: _short(value) for name, value in asdict(row).items()})
        try:
            with open(self.path, "a") as file:
                file.write(text.getvalue())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error.strerror}; measured rows stay") from None


def write_applications(path: Path, applications: Sequence[Application]) -> None:
    """What each application is made of, as JSON: name to its segments."""
    made = {
        application.name: [{"kind": segment.kind, **segment.inputs} for segment in application.segments]
        for application in applications
    }
    write_whole(path, json.dumps(made, indent=1) + "\n")


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
