"""Options that several commands share, and a flag for every setting of `trimtab up`."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trimtab.serve import Setting

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
EndAfter = Annotated[
    float | None, typer.Option("--seconds", min=0.1, help="End after so long; otherwise at Ctrl-C.")
]
Points = Annotated[
    Path | None,
    _job(
        "--data",
        metavar="POINTS.csv",
        help="What other jobs did, by `trimtab collect`; else what Trimtab comes with.",
    ),
]
LocalRuns = Annotated[
    Path | None,
    _job("--local", metavar="LOCAL.json", help="Their local runs; else the file beside POINTS.csv."),
]


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add a flag per setting to a command; it is called with `loaded`, the settings from all sources."""
    from trimtab.serve import read_settings, settings_list

    own = inspect.signature(function).parameters
    parameters = [each for each in own.values() if each.name != "loaded"]
    config = panel(_SETTINGS)(
        "--config",
        metavar="FILE",
        help="A YAML file of settings; else $TRIMTAB_CONFIG, trimtab.yaml in Trimtab's home or /etc/trimtab.",
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = {"config": Annotated[Path | None, config]}
    flags |= {each.name: _annotation(each) for each in settings_list()}
    parameters += [
        inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in flags.items()
    ]

    @functools.wraps(function)
    def command(config: Path | None = None, **given: Any) -> None:
        values = {each.name: given.pop(each.name, None) for each in settings_list()}
        named = {name: value for name, value in values.items() if value not in (None, [])}
        function(loaded=read_settings(named, config), **given)

    parameters = [each.replace(kind=keyword) for each in parameters]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _annotation(setting: "Setting") -> Any:
    default = setting.default
    if setting.is_switch:
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        option = panel(_SETTINGS)(flag, help=setting.help, show_default="on" if default else "off")
        return Annotated[bool | None, option]
    option = panel(_SETTINGS)(
        setting.flag,
        metavar=setting.metavar,
        help=setting.help,
        show_default=f"{default}" if default not in ("", ()) else False,
    )
    return Annotated[(list[str] if isinstance(default, tuple) else str) | None, option]
