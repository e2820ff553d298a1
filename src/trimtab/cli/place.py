"""Where commands keep things and look them up: in the store here, or at the server that `--server` names."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trimtab.core import TrimtabError
    from trimtab.serve import Client, Service

HERE_ALONE = ("up", "agent", "token", "store", "demo")
"""Commands about this machine's own processes and files: they are refused where a server is named."""

KEEP_NOTHING = ("simulate", "collect", "calibrate", "bench", "doctor", "config")
"""Commands that no store has to do with: they run as if no server were named."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server's URL, and the token to ask it with."""

    url: str
    token: str


_ASKED: ContextVar[Server | None] = ContextVar("server", default=None)


def server_of(url: str, token_file: Path | None, token: str, command: str | None) -> Server | None:
    """The server that a command is for; None where it is for none. Refuses those about this machine alone."""
    from trimtab.core import BadInputError

    if command in KEEP_NOTHING:
        return None
    if command is not None and command in HERE_ALONE:
        raise _here_alone(command)
    if token_file is None:
        return Server(url, token)
    try:
        return Server(url, token_file.read_text(encoding="utf-8").strip())
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInputError(f"the token in {token_file} cannot be read: {why}") from None


def here_alone(*names: str) -> Callable[[typer.Context], None]:
    """For a group of commands of which these are about this machine alone."""

    def check(context: typer.Context) -> None:
        if not is_here() and context.invoked_subcommand in names:
            raise _here_alone(f"{context.info_name} {context.invoked_subcommand}")

    return check


def _here_alone(command: str) -> "TrimtabError":
    from trimtab.core import BadInputError

    return BadInputError(
        f"trimtab {command} works with this machine alone; run it where the server runs, "
        f"without --server and TRIMTAB_SERVER"
    )


def ask(server: Server | None) -> None:
    """From now on, commands are for that server; None: for the store here."""
    _ASKED.set(server)


def is_here() -> bool:
    """Whether it is the store here."""
    return _ASKED.get() is None


@contextmanager
def place() -> "Iterator[Service | Client]":
    """All that can be asked for, there or here: under the same names, with the same results."""
    server = _ASKED.get()
    if server is not None:
        from trimtab.serve import Client

        with Client(server.url, server.token) as client:
            yield client
        return
    from trimtab.serve import LOCAL, Backend, Service
    from trimtab.store import open_store

    with open_store() as store:
        yield Service(Backend(store), LOCAL)


def check_place() -> None:
    """Before long work: whether the store opens, or the server answers and knows who asks."""
    with place() as at:
        if not is_here():
            at.decisions.page(1)
