"""What packaging is held against: the command as it is, and the settings it knows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from trimtab.cli.app import app

PACKAGING = Path(__file__).resolve().parent.parent.parent / "packaging"


@pytest.fixture(scope="session")
def packaging() -> Path:
    return PACKAGING


@pytest.fixture(scope="session")
def accepts() -> Callable[[Sequence[str]], None]:
    """Fails where the words after `trimtab` name a command or a flag that is not there."""

    def check(words: Sequence[str]) -> None:
        command: Any = typer.main.get_command(app)
        context, rest = command.context_class(command, info_name="trimtab"), list(words)
        while True:
            try:
                _, left, _ = command.make_parser(context).parse_args(list(rest))
            except Exception as error:  # of the parser's own kind, which Typer brings along
                pytest.fail(f"trimtab {' '.join(words)}: {error}")
            if not hasattr(command, "get_command") or not left:
                return
            try:
                name, found, rest = command.resolve_command(context, left)
            except Exception as error:
                pytest.fail(f"trimtab has no command {left[0]}: {error}")
            command, context = found, found.context_class(found, parent=context, info_name=name)

    return check
