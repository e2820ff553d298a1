"""What commands print: sentences, tables, warnings, progress; and how they end when interrupted."""

import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def say(text: str, error: bool = False, style: str | None = None) -> None:
    """Print text as it is, without breaking lines or reading markup in it."""
    from rich.console import Console

    Console(stderr=error, highlight=False, soft_wrap=True).print(text, markup=False, style=style)


def warn(sentence: str) -> None:
    """Print a warning on standard error; the command goes on."""
    say(f"trimtab: {sentence}", error=True)


def new_table(*columns: str, **settings: Any) -> "Table":
    """A table without lines. A column's text folds, unless its head begins with `<` (left) or `>` (right)."""
    from rich.table import Table

    made = Table(**{"box": None, "pad_edge": False, **settings})
    for head in columns:
        if head[:1] in ("<", ">"):
            made.add_column(head[1:], no_wrap=True, justify="left" if head[0] == "<" else "right")
        else:
            made.add_column(head, overflow="fold")
    return made


def print_table(table: "Table") -> None:
    """Print a table on standard output."""
    from rich.console import Console

    Console(highlight=False).print(table)


@contextmanager
def progress(
    description: str, total: float | None = None, counted: bool = False, remaining: bool = False
) -> "Iterator[Callable[..., None]]":
    """A bar on standard error if that is a terminal; yields `update(description=, completed=, total=)`.

    It appears with the first update, so that a refusal before stays one sentence, and vanishes at the end.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [BarColumn(), TextColumn("{task.description}", markup=False)]
    columns += [MofNCompleteColumn()] if counted else []
    columns += [TextColumn("left"), TimeRemainingColumn()] if remaining else [TimeElapsedColumn()]
    screen = Console(stderr=True)
    bar = Progress(
        *columns,
        console=screen,
        transient=True,
        redirect_stdout=False,
        disable=not screen.is_terminal,
        speed_estimate_period=3600.0,
    )
    task = bar.add_task(description, total=total)

    def update(**changes: Any) -> None:
        bar.start()
        bar.update(task, **changes)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()


@contextmanager
def ending_in_order(kept: str) -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: clean up, then exit with 130 and say what is `kept`."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; {kept}")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def check_files(*paths: Path | None) -> None:
    """Refuse, before long work, a file that could not be written."""
    from trimtab.kernel import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def write_file(path: Path | None, make: Callable[[], str], name: str = "report") -> list[str]:
    """Write what `make` returns to `path` if there is one; the line that says where."""
    from trimtab.kernel import write_whole

    if path is None:
        return []
    write_whole(path, make())
    return [f"{name}: {path.resolve()}"]


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> Any:
    """An option's value if it is allowed; else a refusal that names the nearest."""
    from trimtab.core import BadInputError, did_you_mean

    if value not in allowed:
        near = did_you_mean(value, allowed)
        raise BadInputError(f'{option} is "{value:.40}"{near}; it should be one of {", ".join(allowed)}')
    return value


def until_stopped(stop: Callable[[], None]) -> None:
    """Call `stop` at Ctrl-C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop())


@functools.cache
def file_name(name: str) -> str:
    """A workload's name with letters only that any file system takes."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
