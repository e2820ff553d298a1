"""CSV files that grow while something is measured: rows are appended down to the disk, or not at all."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trimtab.core import BadInputError, StorageError


def whole_lines(path: Path, columns: Sequence[str], kind: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Number, text and values of every line below the header; a last one that a kill cut off is left out.

    `kind` says what the file should have, for a sentence about one that has not.
    """
    header = ",".join(columns) + "\n"
    try:
        head, *lines = path.read_text().splitlines(keepends=True) or [header]
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from None
    if head != header:
        raise BadInputError(f"{path} is not a file of {kind}; name another one")
    for number, line in enumerate(lines, 2):
        words = next(csv.reader([line]))
        if line.endswith("\n") and len(words) == len(columns):
            yield number, line, dict(zip(columns, words, strict=True))
        elif number <= len(lines):
            raise BadInputError(f"{path}, line {number} is not a row of {kind}; name another file")


def append_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Add rows, all of them or none."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    for row in rows:
        writer.writerow({name: _short(value) for name, value in row.items()})
    try:
        with open(path, "ab", buffering=0) as file:
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
            f"{path} cannot be written: {error.strerror}; what was measured before is kept, "
            "and the same command goes on from there"
        ) from None


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
