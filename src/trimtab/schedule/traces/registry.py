"""Which reader a file is for, by its columns, and which of the traces in it."""

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
    """A format of trace files: the columns it needs, the one that names traces in a file if there is one."""

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
"""One more is a function that reads a table, and a line here."""

_NAMED = 12  # parts of a file that a sentence lists


def read_trace(path: Path | str, part: str | None = None) -> Trace:
    """The trace in a file, or the one called `part` where there are several."""
    with _no_collecting():
        return _read(path, part)


def _read(path: Path | str, part: str | None) -> Trace:
    table, reader = _open(path)
    if reader.parts is None or reader.parts not in table.columns:
        if part is not None:
            raise BadInputError(f'{path} holds a single trace, none called "{part}"; leave the name out')
        return reader.read(table, _stem(table.path))
    rows = _parts(table, reader.parts)
    name = part if part is not None else next(iter(rows))
    if name not in rows and (name := _short(name)) not in rows:
        raise NotFoundError(
            f'{path}: no trace is called "{part}"{did_you_mean(name, rows)}; {_listed(list(rows))}'
        )
    if part is None and len(rows) > 1:
        raise BadInputError(f"{path} holds {len(rows)} traces: say which; {_listed(list(rows))}")
    return reader.read(table.rows(rows[name]), name)


def read_traces(path: Path | str) -> dict[str, Trace]:
    """Every trace in a file, by name."""
    with _no_collecting():
        table, reader = _open(path)
        if reader.parts is None or reader.parts not in table.columns:
            trace = reader.read(table, _stem(table.path))
            return {trace.name: trace}
        parts = _parts(table, reader.parts)
        return {name: reader.read(table.rows(rows), name) for name, rows in parts.items()}


def trace_names(path: Path | str) -> tuple[str, ...]:
    """Names of the traces in a file; the file's own name if it holds a single one."""
    table, reader = _open(path)
    if reader.parts is None or reader.parts not in table.columns:
        return (_stem(table.path),)
    return tuple(_parts(table, reader.parts))


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Python looks for garbage while objects are made: hundreds of thousands of jobs, none of it garbage."""
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
            f"{path}: these are the columns of no trace: {', '.join(list(table.columns)[:_NAMED])}; one of "
            f"your own needs {' and '.join(OWN_COLUMNS)}, and may have {', '.join(OTHER_COLUMNS)}"
        )
    if not len(table):
        raise BadInputError(f"{path} holds no job; there must be a row for each below the names")
    return table, reader


def _parts(table: TraceTable, column: str) -> dict[str, list[int]]:
    """Rows of each trace, by short name."""
    names = {cell: _short(cell) for cell in dict.fromkeys(table.text(column))}
    rows: dict[str, list[int]] = {short: [] for short in names.values()}
    for row, cell in enumerate(table.columns[column]):
        rows[names[cell]].append(row)
    return rows


def _short(name: str) -> str:
    """ "saturn-1" for "saturn/workload-1", and no ".trace" at the end."""
    return name.replace("/workload-", "-").removesuffix(".trace")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"there are {', '.join(names[:_NAMED])}{more}"


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv")
