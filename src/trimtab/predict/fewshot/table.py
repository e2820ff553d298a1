"""A CSV file, plain or gzipped, as columns; whatever is wrong with it is said with file, line and column."""

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.fewshot.schema import Array, Flags


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file, by column, still as text."""

    path: Path
    lines: tuple[int, ...]
    columns: dict[str, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.lines)

    def only(self, rows: Flags, kind: str) -> "Table":
        """Chosen rows, of which there must be one; `kind` says which. They keep their line numbers."""
        kept = np.flatnonzero(rows).tolist()
        if not kept:
            raise BadInputError(f"{self.path} has no row {kind}")
        columns = {name: tuple(values[i] for i in kept) for name, values in self.columns.items()}
        return Table(self.path, tuple(self.lines[i] for i in kept), columns)

    def text(self, column: str) -> tuple[str, ...]:
        """A column that may not be empty anywhere."""
        values = self.columns[column]
        for row, value in enumerate(values):
            if not value:
                raise self.error(row, column, "is empty; it needs a name")
        return values

    def numbers(self, column: str) -> Array:
        """A column of numbers; empty is NaN."""
        values = self.columns[column]
        try:
            numbers = np.array([float(v) if v else np.nan for v in values], dtype=float)
        except ValueError:
            row = next(i for i, v in enumerate(values) if v and not _is_number(v))
            raise self.error(row, column, f"{values[row]!r} is not a number") from None
        for row in np.flatnonzero(np.isinf(numbers))[:1]:
            raise self.error(row, column, "is infinite; leave what is unknown empty")
        return numbers

    def positive(self, column: str, where: Flags | None = None) -> Array:
        """A column of numbers above zero; where `where` does not hold it may also be empty."""
        numbers = self.numbers(column)
        needed = np.ones(len(self), dtype=bool) if where is None else where
        for row in np.flatnonzero((numbers <= 0) | (needed & np.isnan(numbers)))[:1]:
            value = self.columns[column][row]
            raise self.error(row, column, f"{value!r} is not a number above zero")
        return numbers

    def flags(self, column: str) -> Flags:
        """A column of True and False."""
        values = self.columns[column]
        for row, value in enumerate(values):
            if value not in ("True", "False"):
                raise self.error(row, column, f"{value!r} is neither True nor False")
        return np.array([v == "True" for v in values], dtype=bool)

    def error(self, row: int, column: str, wrong: str) -> BadInputError:
        return BadInputError(f"{self.path}, line {self.lines[row]}, column {column}: {wrong}")


def read_table(path: Path, needed: Sequence[str]) -> Table:
    """The columns in `needed`, which must all be there."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise BadInputError(f"{path} does not exist") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from None
    missing = [name for name in needed if name not in header]
    if missing:
        raise BadInputError(f"{path} has no column {missing[0]!r}; it needs {', '.join(needed)}")
    if not rows:
        raise BadInputError(f"{path} has a header and no row")
    for line, row in rows:
        if len(row) != len(header):
            raise BadInputError(
                f"{path}, line {line} has {len(row)} fields where the header has {len(header)}"
            )
    places = {name: header.index(name) for name in needed}
    columns = {name: tuple(row[place] for _, row in rows) for name, place in places.items()}
    return Table(path, tuple(line for line, _ in rows), columns)


def find(folder: Path, subfolder: str, name: str) -> Path:
    """The file in a folder or in its subfolder, gzipped or not."""
    tried = (parent / variant for parent in (folder, folder / subfolder) for variant in (f"{name}.gz", name))
    for path in tried:
        if path.is_file():
            return path
    raise BadInputError(f"neither {folder} nor {folder / subfolder} has a file {name}.gz or {name}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
