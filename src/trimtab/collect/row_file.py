"""CSV files that grow while something is measured: rows are appended durably, all or none."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, StorageError
from trimtab.kernel import write_whole


class RowFile:
    """A CSV file of one dataclass's rows; `kind` names its content in errors."""

    def __init__(self, path: Path, row: type[Any], kind: str) -> None:
        self.path = path
        self.columns = tuple(field.name for field in fields(row))
        self._kind = kind
        self._header = ",".join(self.columns) + "\n"

    def lines(self) -> Iterator[tuple[int, str, dict[str, str]]]:
        """Number, text and values of every line below the header, without a last one that was cut off."""
        try:
            head, *lines = self.path.read_text().splitlines(keepends=True) or [self._header]
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{self.path} cannot be read: {error}") from None
        if head != self._header:
            raise BadInputError(f"{self.path} is not a file of {self._kind}; name another one")
        for number, line in enumerate(lines, 2):
            words = next(csv.reader([line]))
            if line.endswith("\n") and len(words) == len(self.columns):
                yield number, line, dict(zip(self.columns, words, strict=True))
            elif number <= len(lines):
                raise self.not_a_row(number)

    def not_a_row(self, number: int) -> BadInputError:
        """The error about a line that cannot be used."""
        return BadInputError(f"{self.path}, line {number} is not a row of {self._kind}; name another file")

    def begin(self, lines: Iterable[str]) -> None:
        """Make the file ready to be appended to, with these lines below its header."""
        text = "".join([self._header, *lines])
        if not self.path.exists() or self.path.read_text() != text:
            write_whole(self.path, text)

    def append(self, rows: Sequence[Any]) -> None:
        """Add rows, all of them or none."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        for row in rows:
            values = asdict(row).items()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in values})
        try:
            with open(self.path, "ab", buffering=0) as file:
                before = file.tell()
                try:
                    if file.write(text.getvalue().encode()) < len(text.getvalue()):
                        raise OSError(0, "No space left on device")
                    os.fsync(file.fileno())
                except BaseException:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be written: {error.strerror}; earlier measurements are kept, and the"
                " same command goes on from there"
            ) from None
