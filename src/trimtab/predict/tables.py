"""Tables by column: CSV files whose errors name file, line and column, and rows of dataclasses of columns."""

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CsvTable:
    """The rows of a file by column, as text, with their line numbers."""

    path: Path
    lines: tuple[int, ...]
    columns: dict[str, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self) -> list[tuple[int, dict[str, str]]]:
        rows = zip(self.lines, *self.columns.values(), strict=True)
        return [(line, dict(zip(self.columns, values, strict=True))) for line, *values in rows]

    def only(self, rows: Flags, kind: str) -> "CsvTable":
        """Chosen rows with their line numbers; `kind` describes them if there is none."""
        chosen = np.flatnonzero(rows).tolist()
        if not chosen:
            raise BadInputError(f"{self.path} has no row {kind}")
        columns = {name: tuple(values[i] for i in chosen) for name, values in self.columns.items()}
        return CsvTable(self.path, tuple(self.lines[i] for i in chosen), columns)

    def text(self, column: str) -> tuple[str, ...]:
        """A column that may not be empty anywhere."""
        values = self.columns[column]
        if "" in values:
            raise self.error(values.index(""), column, "is empty; it needs a name")
        return values

    def numbers(self, column: str) -> Array:
        """A column of numbers; empty is NaN."""
        numbers = np.full(len(self), np.nan)
        for row, value in enumerate(self.columns[column]):
            try:
                numbers[row] = float(value) if value else np.nan
            except ValueError:
                raise self.error(row, column, f"{value!r:.60} is not a number") from None
        for row in np.flatnonzero(np.isinf(numbers))[:1]:
            raise self.error(row, column, "is infinite; leave an unknown value empty")
        return numbers

    def positive(self, column: str, where: Flags | None = None) -> Array:
        """A column of numbers above zero; where `where` does not hold it may also be empty."""
        numbers = self.numbers(column)
        needed = np.ones(len(self), dtype=bool) if where is None else where
        for row in np.flatnonzero((numbers <= 0) | (needed & np.isnan(numbers)))[:1]:
            raise self.error(row, column, f"{self.columns[column][row]!r:.60} is not a number above zero")
        return numbers

    def flags(self, column: str) -> Flags:
        """A column of True and False."""
        values = self.columns[column]
        for row, value in enumerate(values):
            if value not in ("True", "False"):
                raise self.error(row, column, f"{value!r:.60} is neither True nor False")
        return np.array([value == "True" for value in values], dtype=bool)

    def error(self, row: int, column: str, problem: str) -> BadInputError:
        return BadInputError(f"{self.path}, line {self.lines[row]}, column {column}: {problem}")


def read_table(path: Path, needed: Sequence[str], hint: str = "") -> CsvTable:
    """A CSV file, plain or gzipped, that has the columns in `needed`; `hint` follows "there is no file"."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}{hint}") from None
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
    columns = dict(zip(header, zip(*(row for _, row in rows), strict=True), strict=True))
    return CsvTable(path, tuple(line for line, _ in rows), columns)


def find_file(folder: Path, subfolder: str, name: str) -> Path:
    """The file in a folder or in its subfolder, gzipped or not."""
    for path in (
        parent / variant for parent in (folder, folder / subfolder) for variant in (f"{name}.gz", name)
    ):
        if path.is_file():
            return path
    raise BadInputError(f"neither {folder} nor {folder / subfolder} has a file {name}.gz or {name}")


def take_rows(table: T, rows: ArrayLike) -> T:
    """A dataclass of columns (arrays, tuples, nested tables) with these rows: a mask, or indices in order."""
    index = np.asarray(rows)
    index = np.flatnonzero(index) if index.dtype == np.bool_ else index.astype(np.intp)

    def taken(column: Any) -> Any:
        if isinstance(column, np.ndarray):
            return column[index]
        if isinstance(column, tuple):
            return tuple(column[i] for i in index)
        return take_rows(column, index) if is_dataclass(column) else column

    mapped: T = _mapped(taken, table)
    return mapped


def join_rows(*tables: T) -> T:
    """Tables of one kind after one another; other fields are those of the first."""

    def joined(*columns: Any) -> Any:
        if isinstance(columns[0], np.ndarray):
            return np.concatenate(columns)
        if isinstance(columns[0], tuple):
            return sum(columns, ())
        return join_rows(*columns) if is_dataclass(columns[0]) else columns[0]

    mapped: T = _mapped(joined, *tables)
    return mapped


def _mapped(change: Any, *tables: Any) -> Any:
    columns = {f.name: change(*(getattr(table, f.name) for table in tables)) for f in fields(tables[0])}
    return replace(tables[0], **columns)
