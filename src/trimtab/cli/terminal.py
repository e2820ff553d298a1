"""Output that commands share (text, tables, progress bars, files, refusals) and the options they share."""

import functools
import inspect
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.serve import ServiceSetting

OUTPUT, JOB = "Output", "A training job of a SPEC"
_SETTINGS = "Settings"


def command_group(help: str | None = None, **settings: Any) -> typer.Typer:
    """A command that has subcommands."""
    shared = {"no_args_is_help": True, "add_completion": False, "rich_markup_mode": "markdown"}
    return typer.Typer(**{**shared, **({"help": help} if help else {}), **settings})


def panel(name: str) -> Callable[..., Any]:
    """`typer.Option` for options that the help lists under this heading."""
    return functools.partial(typer.Option, rich_help_panel=name)


_output, _job = panel(OUTPUT), panel(JOB)

Json = Annotated[bool, _output("--json", help="Print JSON instead: seconds, bytes, dollars.")]
Html = Annotated[Path | None, _output("--html", metavar="FILE", help="Write a report with charts.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
EndAfter = Annotated[
    float | None,
    typer.Option("--seconds", min=0.1, help="End after this many seconds; default: run until Ctrl-C."),
]
Points = Annotated[
    Path | None,
    _job(
        "--data",
        metavar="POINTS.csv",
        help="Measurements of other jobs, made by `trimtab collect`; default: the bundled ones.",
    ),
]
LocalRuns = Annotated[
    Path | None,
    _job(
        "--local",
        metavar="LOCAL.json",
        help="Local runs of the jobs in POINTS.csv; default: the .local.json file in its folder.",
    ),
]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add a flag per setting of `trimtab up`; the command is called with `loaded`, the settings in force."""
    from trimtab.serve import read_settings, settings_list

    config = panel(_SETTINGS)(
        "--config",
        metavar="FILE",
        help="A YAML file of settings; default: $TRIMTAB_CONFIG, else trimtab.yaml in Trimtab's home, "
        "else /etc/trimtab/trimtab.yaml.",
    )
    annotations = {"config": Annotated[Path | None, config]}
    annotations |= {setting.name: _annotation(setting) for setting in settings_list()}
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(function).parameters.values()
    parameters = [parameter.replace(kind=keyword) for parameter in own if parameter.name != "loaded"]
    parameters += [
        inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in annotations.items()
    ]

    @functools.wraps(function)
    def command(config: Path | None = None, **options: Any) -> None:
        values = {setting.name: options.pop(setting.name, None) for setting in settings_list()}
        flags = {name: value for name, value in values.items() if value not in (None, [])}
        function(loaded=read_settings(flags, config), **options)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _annotation(setting: "ServiceSetting") -> Any:
    option, default = functools.partial(panel(_SETTINGS), help=setting.help), setting.default
    if setting.is_switch:
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return Annotated[bool | None, option(flag, show_default="on" if default else "off")]
    shown = setting.text(default) if default not in ("", ()) else False
    kind = list[str] if isinstance(default, tuple) else str
    return Annotated[kind | None, option(setting.flag, metavar=setting.metavar, show_default=shown)]


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

    table = Table(**{"box": None, "pad_edge": False, **settings})
    for head in columns:
        if head[:1] in ("<", ">"):
            table.add_column(head[1:], no_wrap=True, justify="left" if head[0] == "<" else "right")
        else:
            table.add_column(head, overflow="fold")
    return table


def print_table(table: "Table") -> None:
    """Print a table on standard output."""
    from rich.console import Console

    Console(highlight=False).print(table)


def print_rows(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    optional: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print a table whose cells are never broken; a head that begins with `>` is aligned right.

    Empty columns are left out, unless there are no rows. While the table is wider than the terminal, so are
    the columns in `optional`, the first one first. A cell's second line is dim. `notes` has a line below each
    row, cut off at the terminal's edge.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    columns = {
        head: [head.lstrip(">"), *(row[at] for row in rows)]
        for at, head in enumerate(heads)
        if not rows or any(row[at] for row in rows)
    }
    widths = {
        head: max(cell_len(line) for cell in cells for line in cell.split("\n"))
        for head, cells in columns.items()
    }
    for head in optional:
        if head in columns and sum(width + 2 for width in widths.values()) - 2 > console.width:
            del columns[head], widths[head]
    for number in range(len(rows) + 1):
        cells = [(head, columns[head][number].split("\n")) for head in columns]
        for line in range(max(len(lines) for _, lines in cells)):
            text = Text(style="bold" if number == 0 else "dim" if line else "")
            for head, lines in cells:
                part = lines[line] if line < len(lines) else ""
                padding = " " * (widths[head] - cell_len(part))
                text.append(f"{padding}{part}  " if head.startswith(">") else f"{part}{padding}  ")
            text.rstrip()
            console.print(text, soft_wrap=True)
        if number and notes and notes[number - 1]:
            note = Text(f"  {' '.join(notes[number - 1].split())}", style="dim")
            note.truncate(console.width, overflow="ellipsis")
            console.print(note, soft_wrap=True)


@contextmanager
def progress(
    description: str, total: float | None = None, counted: bool = False, remaining: bool = False
) -> "Iterator[Callable[..., None]]":
    """A bar on standard error if that is a terminal; yields `update(description=, completed=, total=)`.

    It appears with the first update, so that a refusal before stays one sentence, and vanishes at the end.
    """
    from rich import progress as bars
    from rich.console import Console

    columns: list[bars.ProgressColumn] = [
        bars.BarColumn(),
        bars.TextColumn("{task.description}", markup=False),
    ]
    columns += [bars.MofNCompleteColumn()] if counted else []
    columns += (
        [bars.TextColumn("left"), bars.TimeRemainingColumn()] if remaining else [bars.TimeElapsedColumn()]
    )
    console = Console(stderr=True)
    bar = bars.Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
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
def ending_in_order(note: str) -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: clean up, warn with the `note`, and exit with 130."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; {note}")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def until_stopped(stop: Callable[[], None]) -> None:
    """Call `stop` at Ctrl-C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop())


def check_files(*paths: Path | None) -> None:
    """Refuse, before long work, a file that could not be written.

    Only the last folder of a path is created, and none at the root of the file system: there, a folder that
    does not exist is a mistyped path.
    """
    from trimtab.core import BadInputError
    from trimtab.kernel import check_writable

    for path in paths:
        if path is None:
            continue
        folder = path.absolute().parent
        above = folder.parent
        if not folder.exists() and (above == Path(folder.anchor) or not above.exists()):
            raise BadInputError(f"{path} cannot be written: there is no folder {folder}; create it first")
        check_writable(path)


def write_file(path: Path | None, make: Callable[[], str], name: str = "report") -> list[str]:
    """Write what `make` returns to `path` if there is one; the line that says where."""
    from trimtab.kernel import write_whole

    if path is None:
        return []
    write_whole(path, make())
    return [f"{name}: {path.resolve()}"]


def one_of(option: str, value: str, allowed: Sequence[str]) -> Any:
    """An option's value if it is allowed; else a refusal that names the nearest."""
    from trimtab.core import BadInputError, did_you_mean

    if value not in allowed:
        near = did_you_mean(value, allowed)
        raise BadInputError(f'{option} is "{value:.40}"{near}; it should be one of {", ".join(allowed)}')
    return value


def file_name(name: str) -> str:
    """A workload's name, with hyphens for characters that some file systems do not take."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
