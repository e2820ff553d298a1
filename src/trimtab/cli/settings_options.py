"""A flag for every setting, for commands that start or look at a service."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.serve import Setting, settings_list

_PANEL = "Settings"


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """The command with one more flag per setting; it is called with `told`, what all sources say together."""
    own = inspect.signature(function).parameters
    parameters = [each for each in own.values() if each.name != "told"]
    config = typer.Option(
        "--config",
        metavar="FILE",
        help="A YAML file of settings; else $TRIMTAB_CONFIG, trimtab.yaml in Trimtab's home or /etc/trimtab.",
        rich_help_panel=_PANEL,
        show_default=False,
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters.append(
        inspect.Parameter("config", keyword, default=None, annotation=Annotated[Path | None, config])
    )
    parameters += [
        inspect.Parameter(each.name, keyword, default=None, annotation=_annotation(each))
        for each in settings_list()
    ]

    @functools.wraps(function)
    def command(config: Path | None = None, **given: Any) -> None:
        from trimtab.serve import read_settings

        told = {each.name: given.pop(each.name, None) for each in settings_list()}
        flags = {name: value for name, value in told.items() if value not in (None, [])}
        function(told=read_settings(flags, config), **given)

    parameters = [each.replace(kind=keyword) for each in parameters]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _annotation(setting: Setting) -> Any:
    shown = setting.default
    if setting.is_switch:
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        option = typer.Option(
            flag, help=setting.help, rich_help_panel=_PANEL, show_default="on" if shown else "off"
        )
        return Annotated[bool | None, option]
    option = typer.Option(
        setting.flag,
        metavar=setting.metavar,
        help=setting.help,
        rich_help_panel=_PANEL,
        show_default=f"{shown}" if shown not in ("", ()) else False,
    )
    return Annotated[(list[str] if isinstance(shown, tuple) else str) | None, option]
