"""Finds the reader of a trace file by its columns, and a trace in it by name."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trimtab.core import BadInputError, NotFoundError, did_you_mean
from trimtab.schedule.traces.own import OTHER_COLUMNS, OWN_COLUMNS, read_own
from trimtab.schedule.traces.published import (
    ALIBABA_COLUMNS,
    ALIBABA_PARTS,
    GAVEL_COLUMNS,
    GAVEL_PARTS,
    GOODPUT_COLUMNS,
    GOODPUT_PARTS,
    PHILLY_COLUMNS,
    read_alibaba,
    read_gavel,
    read_goodput,
    read_philly,
)
from trimtab.schedule.traces.table import Trace, TraceTable, read_table


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of trace files: the columns it needs, and the one that names traces in a file, if any."""

    columns: Sequence[str]
    parts: str | None
    read: Callable[[TraceTable, str], Trace]


READERS: Mapping[str, TraceFormat] = {
    "goodput": TraceFormat(GOODPUT_COLUMNS, GOODPUT_PARTS, read_goodput),
    "philly": TraceFormat(PHILLY_COLUMNS, None, read_philly),
    "gavel": TraceFormat(GAVEL_COLUMNS, GAVEL_PARTS, read_gavel),
    "alibaba": TraceFormat(ALIBABA_COLUMNS, ALIBABA_PARTS, read_alibaba),
    "own": TraceFormat(OWN_COLUMNS, None, read_own),
}
"""To add a format, write a function that reads a table, and a line here."""

_NAMED = 12  # parts of a file that a sentence lists


def read_trace(path: Path | str, part: str | None = None) -> Trace:
    """The trace in a file, or the one called `part` where there are several."""
    with _no_collecting():
        table, reader = _open(path)
        rows = _parts(table, reader)
        listed = f"there are {', '.join(list(rows)[:_NAMED])}"
        listed += f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        if part is None and len(rows) > 1:
            raise BadInputError(f"{path} holds {len(rows)} traces; name one with --part: {listed}")
        if reader.parts not in table.columns and part is not None:
            raise BadInputError(f'{path} holds a single trace, none called "{part}"; leave the name out')
        name = part if part is not None else next(iter(rows))
        if name not in rows and (name := _short(name)) not in rows:
            raise NotFoundError(f'{path}: no trace is called "{part}"{did_you_mean(name, rows)}; {listed}')
        return reader.read(table.rows(rows[name]), name)


def read_traces(path: Path | str) -> dict[str, Trace]:
    """Every trace in a file, by name."""
    with _no_collecting():
        table, reader = _open(path)
        return {name: reader.read(table.rows(rows), name) for name, rows in _parts(table, reader).items()}


def trace_names(path: Path | str) -> tuple[str, ...]:
    """Names of the traces in a file; the file's own name if it holds a single one."""
    return tuple(_parts(*_open(path)))


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Pause garbage collection, which slows the making of hundreds of thousands of jobs down."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _open(path: Path | str) -> tuple[TraceTable, TraceFormat]:
    table = read_table(Path(path))
    reader = next((r for r in READERS.values() if all(name in table.columns for name in r.columns)), None)
    if reader is None:
        raise BadInputError(
            f"{path}: no known trace has the columns {', '.join(list(table.columns)[:_NAMED])}; a trace of "
            f"your own needs {' and '.join(OWN_COLUMNS)}, and may have {', '.join(OTHER_COLUMNS)}"
        )
    if not len(table):
        raise BadInputError(f"{path} holds no job; add a row for each below the names")
    return table, reader


def _parts(table: TraceTable, reader: TraceFormat) -> dict[str, Sequence[int]]:
    """Rows of each trace by short name; of a single trace, by the file's name."""
    if reader.parts is None or reader.parts not in table.columns:
        return {table.path.name.removesuffix(".gz").removesuffix(".csv"): range(len(table))}
    names = {cell: _short(cell) for cell in dict.fromkeys(table.text(reader.parts))}
    rows: dict[str, list[int]] = {short: [] for short in names.values()}
    for row, cell in enumerate(table.columns[reader.parts]):
        rows[names[cell]].append(row)
    return dict(rows)


def _short(name: str) -> str:
    """ "saturn-1" for "saturn/workload-1", and no ".trace" at the end."""
    return name.replace("/workload-", "-").removesuffix(".trace")
