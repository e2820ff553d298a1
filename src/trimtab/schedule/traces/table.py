"""A trace, and the CSV table it is read from: columns of text, refusals with file and line."""

import csv
import gzip
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import NoReturn

import numpy as np

from trimtab.core import BadInputError, NotFoundError, one_line
from trimtab.schedule.cluster import Floats, NodeGroup
from trimtab.schedule.job import Job

ANY_KIND = ""
"""In `Job.speeds`: on accelerators of any kind that is not named, and on none."""

SECONDS_ANYWHERE = {ANY_KIND: 1.0}
"""Speeds of a job whose work is in seconds of one worker on any kind of node."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, their cluster where the file names it, and notes about corrections.

    `batch_sizes` are samples per step that users asked for, by job, where known.
    """

    name: str
    jobs: tuple[Job, ...]
    groups: tuple[NodeGroup, ...] = ()
    notes: tuple[str, ...] = ()
    batch_sizes: Mapping[str, int] = field(default_factory=dict)

    def elastic(self, most: int) -> "Trace":
        """A trace whose jobs accept any number of workers up to `most`."""
        return replace(self, jobs=tuple(replace(job, least=1, most=most) for job in self.jobs))


@dataclass(frozen=True, slots=True, eq=False)
class TraceTable:
    """Columns of a file, by name, and the line each row is on."""

    path: Path
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self, chosen: Sequence[int]) -> "TraceTable":
        """Some of the rows, in this order."""
        pick = itemgetter(*chosen) if len(chosen) > 1 else lambda cells: tuple(cells[row] for row in chosen)
        columns = {name: pick(cells) for name, cells in self.columns.items()}
        return TraceTable(self.path, columns, pick(self.lines))

    def refuse(self, row: int, sentence: str) -> NoReturn:
        """Raise BadInputError with the file and the row's line."""
        raise BadInputError(f"{self.path}:{self.lines[row]}: {sentence}")

    def text(self, name: str) -> Sequence[str]:
        """A column without empty cells."""
        cells = self.columns[name]
        if "" in cells:
            self.refuse(cells.index(""), f"{name} is empty; every row needs one")
        return cells

    def numbers(
        self, name: str, least: float = 0.0, above: float | None = None, hole: float | None = None
    ) -> Floats:
        """A column of finite numbers, at least `least` or greater than `above`; an empty cell is `hole`."""
        cells = self.columns[name]
        empty = np.zeros(len(cells), dtype=bool)
        if hole is not None and "" in cells:
            empty = np.array([cell == "" for cell in cells])
            cells = [cell or "0" for cell in cells]
        values = self._parsed(name, cells)
        low = values < least if above is None else values <= above
        bad = np.flatnonzero((low | ~np.isfinite(values)) & ~empty)
        if bad.size:
            limit = f"of at least {least:g}" if above is None else f"greater than {above:g}"
            cell = one_line(self.columns[name][bad[0]])
            self.refuse(int(bad[0]), f"{name} is {cell}; it must be a number {limit}")
        return np.where(empty, np.nan if hole is None else hole, values)

    def whole_numbers(self, name: str, least: int = 0) -> list[int]:
        """A column of integers."""
        values = self.numbers(name, least)
        broken = np.flatnonzero(values != np.floor(values))
        if broken.size:
            self.refuse(int(broken[0]), f"{name} is {values[broken[0]]:g}; it must be a whole number")
        return [int(value) for value in values.tolist()]

    def ascending(self, name: str, values: Floats) -> None:
        """Refuse a column that decreases."""
        back = np.flatnonzero(np.diff(values) < 0)
        if back.size:
            row = int(back[0]) + 1
            self.refuse(
                row,
                f"{name} goes back from {values[row - 1]:g} to {values[row]:g}; rows must be in its order",
            )

    def unique(self, name: str) -> Sequence[str]:
        """A column without empty or repeated cells."""
        cells = self.text(name)
        earlier: set[str] = set()
        if len(set(cells)) < len(cells):
            for row, cell in enumerate(cells):
                if cell in earlier:
                    self.refuse(row, f'{name} "{one_line(cell)}" is repeated; every row needs its own')
                earlier.add(cell)
        return cells

    def _parsed(self, name: str, cells: Sequence[str]) -> Floats:
        try:
            return np.array(list(map(float, cells)))
        except ValueError:
            for row, cell in enumerate(cells):
                if not _is_number(cell):
                    shown = f'"{one_line(cell)}"' if cell else "empty"
                    self.refuse(row, f"{name} is {shown}; it must be a number")
            raise


def read_table(path: Path) -> TraceTable:
    """A CSV file with a line of names, compressed by gzip or not."""
    reader = csv.reader(io.StringIO(_text(path), newline=""), skipinitialspace=True)
    rows, lines = [], []
    try:
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise BadInputError(f"{path}:{reader.line_num}: this is not CSV: {error}") from None
    if not rows:
        raise BadInputError(f"{path} is empty; the first line must name the columns")
    header = [name.strip() for name in rows[0]]
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise BadInputError(
            f'{path}:{lines[0]}: column "{one_line(repeated)}" is repeated; name each column once'
        )
    try:
        columns = zip(*rows[1:], strict=True) if len(rows) > 1 else [()] * len(header)
        return TraceTable(path, dict(zip(header, columns, strict=True)), lines[1:])
    except ValueError:
        ragged = next(i for i, row in enumerate(rows) if len(row) != len(header))
        count = len(rows[ragged])
        raise BadInputError(
            f"{path}:{lines[ragged]}: the row has {count} cells; the table has {len(header)} columns"
        ) from None


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise BadInputError(f"{path} is damaged: its compressed content cannot be read") from None
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not text; a trace is CSV in UTF-8, compressed or not") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
